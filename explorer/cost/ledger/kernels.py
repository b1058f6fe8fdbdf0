"""What kernels give where torch itself, on meta or on a CPU, takes a function apart: one call, shapes and strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from explorer.cost.ledger.entered import entered


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """F.dropout by the kernel that CUDA has: it draws a bool mask, applies it and keeps it for backward."""
    plain = inplace or not training or not 0 < p < 1 or not input.is_floating_point() or in_transform()
    return F.dropout(input, p, training, inplace) if plain else torch.native_dropout(input, p, True)[0]


REPLACED: Mapping[Any, Callable[..., Any]] = {
    F.dropout: dropout,
    torch.dropout: lambda input, p, train: dropout(input, p, train),
}
"""Functions of torch, and what is called in their place; on a CPU the same seed gives the same result."""


def in_transform() -> bool:
    """Whether a transform of functorch, as vmap, is at work."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def meta_norm(x: Tensor, shape: Sequence[int], *parameters: Tensor | None) -> Tensor | None:
    """The result of a norm over the last axes, contiguous as kernels give it; None: torch itself must say.

    Torch takes both norms apart on meta, at a hundred times the price.
    """
    shape = tuple(shape)
    fits = len(shape) > 0 and tuple(x.shape[-len(shape) :]) == shape and x.is_floating_point()
    fits &= all(p is None or (tuple(p.shape) == shape and p.dtype == x.dtype) for p in parameters)
    return x.new_empty(x.shape) if fits else None


class KernelLayout(TorchFunctionMode):
    """Inside, SDPA on meta computes nothing, and its result lies in memory as its query does.

    So it is with the kernels of CUDA and CPU; torch takes SDPA apart on meta, whose result then lies head by head.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return sdpa(*args, **(kwargs or {}))


def sdpa(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """F.scaled_dot_product_attention on meta, in the layout of its kernels."""
    out = _empty_result(query, key, value, *args, **kwargs)
    if out is None:
        out = F.scaled_dot_product_attention(query, key, value, *args, **kwargs)
    if out.dim() < 4 or query.stride(-2) <= query.stride(-3):
        return out.contiguous()
    return out.transpose(-3, -2).contiguous().transpose(-3, -2)


def _empty_result(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """A tensor of the result's shape where the operands fit; None: torch itself must say what is wrong, or allowed."""
    operands = (query, key, value)
    if any(x.dim() != 4 or x.dtype != query.dtype or x.shape[0] != query.shape[0] for x in operands):
        return None
    heads, kv_heads = query.shape[1], key.shape[1]
    fits = key.shape[:-1] == value.shape[:-1] and key.shape[-1] == query.shape[-1]
    fits &= heads == kv_heads or (enable_gqa and heads % kv_heads == 0)
    scores = (*query.shape[:-1], key.shape[-2])
    if attn_mask is not None:
        fits &= not is_causal and attn_mask.dtype in (torch.bool, query.dtype) and 2 <= attn_mask.dim() <= 4
        fits &= all(size in (1, wanted) for size, wanted in zip(attn_mask.shape[::-1], scores[::-1], strict=False))
    return query.new_empty(*query.shape[:-1], value.shape[-1]) if fits else None


def on_meta(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a Python function that asks function modes gives on meta, its attention as kernels do it."""
    with KernelLayout():
        return entered(func)(*args, **kwargs)
