"""Functions that a trace takes as one call, because what they decompose into on meta would hide their mask."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from explorer.assembly.attend import attend
from explorer.assembly.grouped import grouped
from explorer.assembly.index_scores import index_scores
from explorer.assembly.visible import Sight
from explorer.cost.products import Products, attention, by_group, index, top_left_pairs
from explorer.cost.rows import Ledger


@dataclass(frozen=True)
class Fused:
    """A function that is one row, and one more in backward; `products(out, *args, **kwargs)` are its forward's."""

    name: str
    products: Callable[..., Products]


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
) -> Products:
    if mask is not None:
        return attention(out, q, k, None, "attend got a mask tensor: the pairs it hides are unknown")
    return attention(out, q, k, visible.pairs(q.shape[-2], k.shape[-2]))


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
) -> Products:
    if attn_mask is not None:
        return attention(
            out, query, key, None, "scaled_dot_product_attention got a mask tensor: the pairs it hides are unknown"
        )
    T, S = query.shape[-2], key.shape[-2]
    return attention(out, query, key, top_left_pairs(T, S) if is_causal else T * S)


def _index_scores(out: Tensor, q: Tensor, k: Tensor, weight: Tensor, visible: Sight) -> Products:
    return index(q, k, visible.pairs(q.shape[-2], k.shape[-2]))


def _grouped(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> Products:
    return by_group(x, weight)


_SDPA = Fused("scaled_dot_product_attention", _scaled_dot_product)
FUSED: Mapping[Any, Fused] = {
    attend: Fused("attend", _attend),
    grouped: Fused("grouped", _grouped),
    index_scores: Fused("index_scores", _index_scores),
    F.scaled_dot_product_attention: _SDPA,
    torch.ops.aten.scaled_dot_product_attention: _SDPA,
    torch.ops.aten.scaled_dot_product_attention.default: _SDPA,
}


def call_fused(ledger: Ledger, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """func(*args, **kwargs) as one row of its own each way; the result is what the function itself gives on meta."""
    leaves, spec = tree_flatten((args, dict(kwargs)))
    fused = FUSED[func]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if all(tensor.is_meta for tensor in tensors) and torch._C._functorch.peek_interpreter_stack() is None:
        return _OneCall.apply(_Call(ledger, func, fused, spec), *leaves)
    # A real tensor needs its real gradient, a batched one its batching rule: the products are counted one by one.
    out = func(*args, **kwargs)
    products = fused.products(out, *args, **kwargs)
    if products.exact != products.dense:
        reason = products.reason or f"{fused.name} was taken apart: its products are counted without its mask"
        ledger.record(fused.name, Products(0, None, reason))
    return out


@dataclass(frozen=True)
class _Call:
    """What one fused call needs besides its tensors."""

    ledger: Ledger
    func: Callable[..., Any]
    fused: Fused
    spec: TreeSpec


class _OneCall(torch.autograd.Function):
    """The function inside a pause, so that autograd keeps one node and the ledger one row each way."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> Any:
        args, kwargs = tree_unflatten(leaves, call.spec)
        with call.ledger.pause():
            out = call.func(*args, **kwargs)
        products = call.fused.products(out, *args, **kwargs)
        call.ledger.record(call.fused.name, products)
        ctx.call, ctx.products = call, products
        # Saved as the kernel would save them: under a checkpoint, reading them back is what recomputes the forward.
        ctx.save_for_backward(*(leaf if isinstance(leaf, Tensor) else None for leaf in leaves))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        call: _Call = ctx.call
        call.ledger.record(f"{call.fused.name}_backward", ctx.products.doubled())
        with call.ledger.pause():
            asked = zip(saved, ctx.needs_input_grad[1:], strict=True)
            return (None, *(torch.empty_like(tensor) if needed else None for tensor, needed in asked))


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
