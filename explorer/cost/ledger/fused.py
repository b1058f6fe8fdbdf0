"""Functions that a trace takes as one call each way: what they decompose into would hide their mask and their bytes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.assembly.attend import attend
from explorer.assembly.grouped import grouped
from explorer.assembly.index_scores import index_scores
from explorer.assembly.visible import Sight
from explorer.cost.ledger.causal_bias import CAUSAL, lower_right
from explorer.cost.ledger.kernels import meta_norm, on_meta, sdpa
from explorer.cost.ledger.products import NO_PRODUCTS, Products, attention, by_group, index, top_left_pairs
from explorer.cost.ledger.rows import Work
from explorer.cost.ledger.traffic import Share, by_rows, whole
from explorer.cost.ledger.work import LAYER_NORM, NOTHING, RMS_NORM, SOFTMAX, affine, of_attention

Cost = tuple[Products, Work]


def _all(tensors: Sequence[Tensor]) -> Sequence[Share]:
    return [whole(tensor) for tensor in tensors]


@dataclass(frozen=True)
class Fused:
    """A function that is one row, and one more in backward.

    cost: products and element-wise work of its forward, `cost(out, *args, **kwargs)`; backward takes twice both.
    by_operand: backward takes them once for each gradient that is asked for.
    meta: what the function gives on meta. keeps_output: its backward reads its result too.
    one_kernel: whether torch has a kernel for these arguments; where not, the call is what it is made of.
    reads: what is read of the tensors it is given, in both directions.
    """

    name: str
    kind: str
    cost: Callable[..., Cost]
    meta: Callable[..., Tensor]
    keeps_output: bool = False
    by_operand: bool = False
    one_kernel: Callable[..., bool] = lambda *args, **kwargs: True
    reads: Callable[[Sequence[Tensor]], Sequence[Share]] = _all


def _attend(
    out: Tensor,
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
) -> Cost:
    """Per visible pair and head 5, and 1 for a soft cap, 1 for a bias, 2 for a dropout; a mask tensor hides nothing."""
    T, S = q.shape[-2], k.shape[-2]
    pairs = visible.pairs(T, S)
    per_head = out.shape[:-2].numel()
    more = Work(cheap=(bias is not None) + 2 * (dropout > 0), transcendental=softcap is not None)
    work = of_attention(out, q, k, pairs) + more * (per_head * pairs)
    if mask is not None:
        return attention(out, q, k, None, "attend got a mask tensor: the pairs it hides are unknown"), work
    return attention(out, q, k, pairs), work


def _scaled_dot_product(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Cost:
    """As `attend`; a mask of numbers is a bias."""
    T, S = query.shape[-2], key.shape[-2]
    pairs = top_left_pairs(T, S) if is_causal else T * S
    biased = attn_mask is not None and attn_mask.dtype != torch.bool
    work = _softmax_work(out, query, key, pairs, dropout_p, biased=biased)
    if attn_mask is None:
        return attention(out, query, key, pairs), work
    unknown = "scaled_dot_product_attention got a mask tensor: the pairs it hides are unknown"
    return attention(out, query, key, None, unknown), work


def _lower_right(out: Tensor, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, **other: Any) -> Cost:
    pairs = CAUSAL.pairs(query.shape[-2], key.shape[-2])
    return attention(out, query, key, pairs), _softmax_work(out, query, key, pairs, dropout_p)


def _softmax_work(out: Tensor, query: Tensor, key: Tensor, pairs: int, dropout: float, *, biased: bool = False) -> Work:
    more = Work(cheap=biased + 2 * (dropout > 0))
    return of_attention(out, query, key, pairs) + more * (out.shape[:-2].numel() * pairs)


def _index_scores(out: Tensor, q: Tensor, k: Tensor, weight: Tensor, visible: Sight) -> Cost:
    """One relu per visible pair and head."""
    pairs = visible.pairs(q.shape[-2], k.shape[-2])
    return index(q, k, pairs), Work(cheap=q.shape[:-2].numel() * pairs)


def _grouped(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> Cost:
    return by_group(x, weight), NOTHING


def _reads_groups(tensors: Sequence[Tensor]) -> Sequence[Share]:
    x, weight, offsets = tensors
    return [whole(x), by_rows(x, weight), whole(offsets)]


def _cross_entropy(out: Tensor, input: Tensor, *args: Any, **kwargs: Any) -> Cost:
    return NO_PRODUCTS, SOFTMAX * input.numel()


def _rms_cost(
    out: Tensor, input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Cost:
    return NO_PRODUCTS, affine(RMS_NORM, weight) * out.numel()


def _of_one_dtype(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> bool:
    return weight is None or weight.dtype == input.dtype


def _layer_norm_cost(
    out: Tensor,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Cost:
    return NO_PRODUCTS, affine(LAYER_NORM, weight, bias) * out.numel()


def _rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    out = meta_norm(input, normalized_shape, weight)
    return F.rms_norm(input, list(normalized_shape), weight, eps) if out is None else out


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    out = meta_norm(input, normalized_shape, weight, bias)
    return F.layer_norm(input, list(normalized_shape), weight, bias, eps) if out is None else out


_RMS = Fused("rms_norm", "norm", _rms_cost, _rms_norm, one_kernel=_of_one_dtype)
_LAYER = Fused("layer_norm", "norm", _layer_norm_cost, _layer_norm)
_SDPA = Fused("scaled_dot_product_attention", "fused", _scaled_dot_product, sdpa, keeps_output=True)
FUSED: Mapping[Any, Fused] = {
    attend: Fused("attend", "fused", _attend, partial(on_meta, attend), keeps_output=True),
    grouped: Fused("grouped", "product", _grouped, partial(on_meta, grouped), by_operand=True, reads=_reads_groups),
    index_scores: Fused("index_scores", "fused", _index_scores, partial(on_meta, index_scores)),
    F.scaled_dot_product_attention: _SDPA,
    lower_right: replace(_SDPA, cost=_lower_right),
    torch.ops.aten.scaled_dot_product_attention: _SDPA,
    torch.ops.aten.scaled_dot_product_attention.default: _SDPA,
    **dict.fromkeys((F.rms_norm, torch.rms_norm), _RMS),
    **dict.fromkeys((F.layer_norm, torch.layer_norm), _LAYER),
    F.cross_entropy: Fused("cross_entropy", "loss", _cross_entropy, partial(on_meta, F.cross_entropy)),
}


_MHA = inspect.signature(F.multi_head_attention_forward)


def masked_by_hand(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Why the products of this F.multi_head_attention_forward hide pairs that only its mask knows; None: they do not.

    With need_weights it adds the mask to the scores itself; without, it calls SDPA, which has its own row.
    """
    given = _MHA.bind(*args, **kwargs)
    given.apply_defaults()
    masked = given.arguments["attn_mask"] is not None or given.arguments["key_padding_mask"] is not None
    if masked and given.arguments["need_weights"]:
        return "multi_head_attention_forward got a mask tensor: the pairs it hides are unknown"
    return None
