"""What a stack takes besides x, and why it does not take the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from explorer.assembly.cache import Cache
from explorer.errors import RefusedError, UsageError


@dataclass(frozen=True)
class Intake:
    """slots: views of a cache that the sublayers use. cross: whether some sublayer reads a context.

    limits: of "cache" and "mask", the reason why one cannot be given.
    """

    slots: int
    limits: Mapping[str, str]
    cross: bool

    def make_cache(
        self, batch: int, capacity: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> Cache:
        """An empty cache for `batch` sequences of `capacity` tokens.

        Raises: RefusedError where the stack keeps none.
        """
        if "cache" in self.limits:
            raise RefusedError(f"there is nothing to cache: {self.limits['cache']}")
        return Cache(self.slots, batch=batch, capacity=capacity, dtype=dtype, device=device)

    def check(self, mask: Tensor | None, cache: Cache | None) -> None:
        """UsageError for a mask or a cache that would be ignored."""
        if mask is not None and "mask" in self.limits:
            raise UsageError(f"a mask cannot be given: {self.limits['mask']}")
        if cache is not None and "cache" in self.limits:
            raise UsageError(f"a cache cannot be given: {self.limits['cache']}")

    def context(self, x: Tensor, context: Tensor | None, cache: Cache | None) -> Tensor | None:
        """The context that cross-attention gets: empty, (B, 0, dim), where the cache holds its keys and values.

        Raises: UsageError where there is neither.
        """
        if not self.cross:
            return None
        if cache is not None and cache.holds_source:
            return x[:, :0]
        if context is None:
            raise UsageError(
                "cross-attention needs `source` (a block: `context`), or a cache that holds its keys and values"
            )
        return context
