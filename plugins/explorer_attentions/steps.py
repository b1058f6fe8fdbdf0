"""The steps around the attention core that the softmax attentions of this package share."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import CacheView, Position, Visible

ACROSS = Visible(causal=False)  # a context is read whole


def is_cross(context: Tensor | None, cache: CacheView | None) -> bool:
    """Whether keys and values come from a context: one given now, or one that the cache has kept."""
    return context is not None or (cache is not None and cache.holds_source)


def source(
    project: Callable[[Tensor], tuple[Tensor, ...]], context: Tensor | None, cache: CacheView | None
) -> tuple[Tensor, ...]:
    """Keys and values (B, kv_heads, S, head_dim) of the context: projected once where there is a cache."""

    def fresh() -> tuple[Tensor, ...]:
        assert context is not None, "a cache that holds keys and values never asks for them again"
        return project(context)

    return fresh() if cache is None else cache.once(fresh)


def rows(linear: nn.Linear, x: Tensor, first: int, last: int | None) -> Tensor:
    """The outputs `first:last` of a fused projection."""
    bias = None if linear.bias is None else linear.bias[first:last]
    return F.linear(x, linear.weight[first:last], bias)


def in_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, T, heads * head_dim) as (B, heads, T, head_dim)."""
    return x.unflatten(-1, (x.shape[-1] // head_dim, head_dim)).transpose(1, 2)


def out_of_heads(y: Tensor) -> Tensor:
    """(B, heads, T, head_dim) as (B, T, heads * head_dim)."""
    return y.transpose(1, 2).flatten(2)


def parted(x: Tensor, gate: int, *widths: int) -> tuple[Tensor | None, tuple[Tensor, ...]]:
    """The gate, which stands first in x (..., gate + sum of widths), and the parts behind it; gate 0: there is none."""
    if not gate:
        return None, x.split(widths, dim=-1)
    first, *parts = x.split([gate, *widths], dim=-1)
    return first, tuple(parts)


def gated(y: Tensor, gate: Tensor | None) -> Tensor:
    """The heads' outputs times the sigmoid of their gate, where there is one; both (B, T, heads * head_dim)."""
    return y if gate is None else y * gate.sigmoid()


def rotates(position: Position) -> bool:
    return type(position).rotate is not Position.rotate


def rotation(position: Position, x: Tensor, cache: CacheView | None) -> Callable[[Tensor], Tensor]:
    """Rotates queries or keys (B, heads, T, head_dim) of the new tokens x (B, T, dim).

    Keys are cached as rotated: a token's place never changes.
    """
    if not rotates(position):
        return unrotated
    offset = _offset(cache)
    positions = torch.arange(offset, offset + x.shape[1], device=x.device)
    return lambda heads: position.rotate(heads, positions)


def unrotated(heads: Tensor) -> Tensor:
    return heads


def scores_bias(position: Position, T: int, S: int, cache: CacheView | None) -> Tensor | None:
    """What a position adds to the scores of T new queries and all S keys, broadcastable to (B, heads, T, S)."""
    return position.bias(T, S, _offset(cache))


def _offset(cache: CacheView | None) -> int:
    return 0 if cache is None else cache.offset
