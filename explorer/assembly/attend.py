"""The attention core that every softmax attention calls: one function, so one ledger rule and one masking rule."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from explorer.assembly.visible import Sight
from explorer.errors import UsageError


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Sight,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(cap(scale q k^T) + bias) v over the visible keys, (B, heads, T, v_dim).

    q (B, heads, T, k_dim), k (B, kv_heads, S, k_dim), v (B, kv_heads, S, v_dim).
    Query head i reads kv head i // (heads / kv_heads).
    mask: bool, True = may attend, broadcastable to (B, heads, T, S); of a longer one the last S columns count.
    bias: added to the scores, broadcastable to (B, heads, T, S).
    scale: 1 / sqrt(k_dim) when None. softcap c: cap(s) = c tanh(s / c).
    sinks (heads,): logits that enter the denominator only. dropout: rate on the attention weights (0 in evaluation).
    A query that sees no key gives zeros, with finite gradients. A `__torch_function__` sees this as one call.
    """
    tensors = (q, k, v, mask, bias, sinks)
    if has_torch_function(tensors):
        return handle_torch_function(
            attend, tensors, q, k, v, visible,
            mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout,
        )  # fmt: skip
    T, S = q.shape[-2], k.shape[-2]
    mask = None if mask is None else _last_columns(mask, S)
    if softcap is not None or sinks is not None:
        keep = _keep(visible, mask, T, S, q.device)
        return _written_out(q, k, v, keep, bias=bias, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout)
    return _fused(q, k, v, visible, mask, bias=bias, scale=scale, dropout=dropout)


_SHORT = 512
"""Keys up to which the CPU's fused kernel loses in backward, where it computes the scores again, what it won before."""


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Sight,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """The same as one call of SDPA."""
    T, S = q.shape[-2], k.shape[-2]
    if mask is None and bias is None and visible.sdpa_causal(T, S):
        return _sdpa(q, k, v, is_causal=True, dropout=dropout, scale=scale)
    keep = _keep(visible, mask, T, S, q.device)
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads != kv_heads and bias is None and (keep is None or k.shape[-1] != v.shape[-1]):
        # The queries of a group become rows of one head: k and v would be repeated for each query head. With a mask,
        # which grows with the rows, only where the widths differ: kernels for equal widths do not repeat.
        B, rows = q.shape[0], heads // kv_heads * T
        if keep is not None:
            keep = keep[(None,) * (4 - keep.ndim)].expand(-1, heads, T, S).reshape(-1, kv_heads, rows, S)
        y = _sdpa(q.reshape(B, kv_heads, rows, q.shape[-1]), k, v, keep, dropout=dropout, scale=scale)
        return y.reshape(B, heads, T, v.shape[-1])
    return _sdpa(q, k, v, _scores_mask(keep, bias, q.dtype), dropout=dropout, scale=scale)


def _sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
    dropout: float,
    scale: float | None,
) -> Tensor:
    gqa, width = q.shape[1] != k.shape[1], v.shape[-1]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if q.device.type == "cpu" and not (q.requires_grad and k.shape[-2] <= _SHORT):
        # Zeros change nothing, and the fused kernel of the CPU takes equal widths only: 1.3 to 2.5 times as fast.
        q, k, v = _widened(q, v.shape[-1]), _widened(k, v.shape[-1]), _widened(v, k.shape[-1])
    y = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal, scale=scale, enable_gqa=gqa
    )
    return y if v.shape[-1] == width else y[..., :width]


def _widened(x: Tensor, width: int) -> Tensor:
    """x with zeros behind its last axis, up to this width."""
    return F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x


def _last_columns(mask: Tensor, S: int) -> Tensor:
    """The part of a mask (..., S or more) that speaks of the last S keys, as (..., T or 1, S)."""
    if mask.dtype != torch.bool:
        raise UsageError(f"a mask must be bool, True = may attend, not {mask.dtype}; scores are changed by `bias`")
    mask = torch.atleast_2d(mask)
    return mask[..., mask.shape[-1] - S :] if mask.shape[-1] > S else mask


def _keep(visible: Sight, mask: Tensor | None, T: int, S: int, device: torch.device) -> Tensor | None:
    """The visible pairs that `mask` keeps, broadcastable to (B, heads, T, S); None when nothing is hidden."""
    if visible.everything(T, S):
        return mask
    keep = visible.mask(T, S, device)
    return keep if mask is None else keep & mask


def _scores_mask(keep: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What SDPA takes: a bool mask, or a float one that is added to the scores."""
    if bias is None:
        return keep
    bias = torch.atleast_2d(bias).to(dtype)
    return bias if keep is None else torch.where(keep, bias, float("-inf"))


def _written_out(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    *,
    bias: Tensor | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
    dropout: float,
) -> Tensor:
    """The same as products and a softmax in float32: SDPA knows neither a soft cap nor sinks."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    # The query is scaled first: float16 scores of wide heads overflow before the scale would shrink them.
    scores = _grouped_product(q * scale, k.transpose(-2, -1))  # (B, heads, T, S)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if keep is not None:
        scores = scores.masked_fill(~keep, float("-inf"))
    if sinks is None:
        weights = _safe_softmax(scores, masked=keep is not None or bias is not None)
    else:
        weights = _softmax_with_sinks(scores, sinks)
    weights = F.dropout(weights, dropout, training=dropout > 0.0)
    return _grouped_product(weights.to(v.dtype), v)  # (B, heads, T, v_dim)


def _safe_softmax(scores: Tensor, *, masked: bool) -> Tensor:
    """Softmax with exact zeros at -inf: no nan in a row of -inf."""
    if not masked:
        return torch.softmax(scores, dim=-1)
    hidden = scores == float("-inf")
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)


def _softmax_with_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    """exp(s) / (exp(sink) + sum exp(s)): the sink as one more score, whose weight goes nowhere.

    A row of -inf is safe, for its sink takes all. A second pass for logsumexp(s) - sink would cost more than the copy.
    """
    B, _, T, _ = scores.shape
    column = sinks.to(scores.dtype).view(-1, 1, 1).expand(B, -1, T, 1)
    return torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]


def _grouped_product(a: Tensor, b: Tensor) -> Tensor:
    """a (B, heads, T, n) @ b (B, kv_heads, n, m), each kv head for its heads / kv_heads rows, without copying b."""
    B, heads, T, _ = a.shape
    kv_heads = b.shape[1]
    if kv_heads == heads:
        return a @ b
    grouped = a.reshape(B, kv_heads, heads // kv_heads * T, -1) @ b
    return grouped.view(B, heads, T, -1)
