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

    Memory: with a softcap the scores of all heads are held in float32, several times over (B heads T S elements), else
    one mask for all heads at most, where a rule or `mask` hides more than SDPA's flag can say.
    """
    tensors = (q, k, v, mask, bias, sinks)
    if has_torch_function(tensors):
        return handle_torch_function(
            attend, tensors, q, k, v, visible,
            mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout,
        )  # fmt: skip
    T, S = q.shape[-2], k.shape[-2]
    mask = None if mask is None else _last_columns(mask, S)
    if softcap is not None or (sinks is not None and T < _FEW):
        keep = _keep(visible, mask, T, S, q.device)
        return _written_out(q, k, v, keep, bias=bias, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout)
    if sinks is not None:
        return _with_sinks(q, k, v, visible, mask, bias=bias, scale=scale, sinks=sinks, dropout=dropout)
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
    return _kept(q, k, v, _keep(visible, mask, T, S, q.device), bias=bias, scale=scale, dropout=dropout)


def _kept(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keep: Tensor | None,
    *,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """The same with a bool mask in place of a rule; None: all pairs."""
    heads, kv_heads, T, S = q.shape[1], k.shape[1], q.shape[-2], k.shape[-2]
    if heads != kv_heads and bias is None and (keep is None or k.shape[-1] != v.shape[-1]):
        # The queries of a group become rows of one head: k and v would be repeated for each query head. With a mask,
        # which grows with the rows, only where the widths differ: kernels for equal widths do not repeat. For one query
        # the mask of rows is a view; for several its copy costs less than to read all keys once for each head.
        B, rows = q.shape[0], heads // kv_heads * T
        if keep is not None:
            keep = keep[(None,) * (4 - keep.ndim)].expand(-1, heads, T, S)
            keep = keep.reshape(keep.shape[0], kv_heads, rows, S)
        y = _sdpa(q.reshape(B, kv_heads, rows, q.shape[-1]), k, v, keep, dropout=dropout, scale=scale)
        return y.reshape(B, heads, T, v.shape[-1])
    return _sdpa(q, k, v, _scores_mask(keep, bias, q.dtype), dropout=dropout, scale=scale)


_FEW = 32
"""Queries below which their scores, written out, cost less than the copy of all keys that a sink among them takes."""

_SINK_CHANNELS = 8
"""More channels of q and k, of which two carry the sinks: kernels want widths that 8 divides."""


def _with_sinks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Sight,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    scale: float | None,
    sinks: Tensor,
    dropout: float,
) -> Tensor:
    """The same by SDPA, with one more key that every query sees: first in line, of value 0, its score the sink."""
    T, S, width = q.shape[-2], k.shape[-2], v.shape[-1]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q = torch.cat([q, _sink_channels(sinks, scale, q.dtype).expand(q.shape[0], -1, T, -1)], dim=-1)
    more = (0, _SINK_CHANNELS, 1, 0)
    k, ones = F.pad(k, more), k.shape[-1]
    k[..., 0, ones : ones + 2] = 1.0
    v = F.pad(v, (0, max(k.shape[-1] - width, 0), 1, 0))
    if mask is None and bias is None and visible.sdpa_causal(T, S):
        # One query more, which sees the sink alone: so all of it is causal as SDPA has it, and no mask is made.
        y = _sdpa(F.pad(q, (0, 0, 1, 0)), k, v, is_causal=True, dropout=dropout, scale=scale)[..., 1:, :]
    else:
        keep = _keep(visible, mask, T, S, q.device)
        keep = None if keep is None else _one_before(keep, S, True)
        bias = None if bias is None else _one_before(torch.atleast_2d(bias), S, 0.0)
        y = _kept(q, k, v, keep, bias=bias, scale=scale, dropout=dropout)
    return y[..., :width]


def _sink_channels(sinks: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """(heads,) as (heads, 1, channels) of queries: the score before the scale, and what rounding took from it."""
    most = torch.finfo(dtype).max  # an infinite one times the zeros of all other keys would be nan
    wide = (sinks.to(torch.promote_types(dtype, torch.float32)) / scale).clamp(-most, most)
    rounded = wide.to(dtype)
    both = torch.stack([rounded, (wide - rounded.to(wide.dtype)).to(dtype)], dim=-1)
    return F.pad(both, (0, _SINK_CHANNELS - 2)).unsqueeze(-2)


def _one_before(columns: Tensor, S: int, value: float) -> Tensor:
    """(..., S or 1) with one more column, in front."""
    return F.pad(columns.expand(*columns.shape[:-1], S), (1, 0), value=value)


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
    """The same as products and a softmax in float32: SDPA knows no soft cap, and few queries need no more for sinks."""
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
    grouped = a.reshape(B, kv_heads, heads // kv_heads * T, a.shape[-1]) @ b
    return grouped.view(B, heads, T, b.shape[-1])
