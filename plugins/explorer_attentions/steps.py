"""The steps around the attention core that the softmax attentions of this package share."""

from collections.abc import Callable

import torch
from torch import Tensor

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


def in_heads(x: Tensor, head_dim: int) -> Tensor:
    """(B, T, ...) with heads * head_dim channels a token, as (B, heads, T, head_dim)."""
    return x.reshape(*x.shape[:2], -1, head_dim).transpose(1, 2)


def placed(
    q: Tensor, k: Tensor, v: Tensor, position: Position, window: int | None, cache: CacheView | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Self-attention's rotated q (B, heads, T, head_dim), all k and v so far (B, kv_heads, S, head_dim), and the bias.

    Keys are cached as rotated: a token's place never changes.
    """
    offset, T = 0 if cache is None else cache.offset, q.shape[-2]
    positions = torch.arange(offset, offset + T, device=q.device)
    q, k = position.rotate(q, positions), position.rotate(k, positions)
    if cache is not None:
        k, v = cache.extend(k=k, v=v, window=window)
    return q, k, v, position.bias(T, k.shape[-2], offset)
