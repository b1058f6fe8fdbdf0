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

    limits: of "cache", "mask" (self-attention's) and "context_mask", the reason why one cannot be given.
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

    def check(self, mask: Tensor | None, cache: Cache | None = None, context_mask: Tensor | None = None) -> None:
        """UsageError for a mask or a cache that would be ignored."""
        if mask is not None and "mask" in self.limits:
            raise UsageError(f"a mask cannot be given: {self.limits['mask']}")
        if cache is not None and "cache" in self.limits:
            raise UsageError(f"a cache cannot be given: {self.limits['cache']}")
        if context_mask is not None and "context_mask" in self.limits:
            reason = self.limits["context_mask"]
            raise UsageError(f"a `source_mask` (a block: `context_mask`) cannot be given: {reason}")

    def check_context(self, context: Tensor | None, context_mask: Tensor | None) -> None:
        """UsageError for a context that no sublayer reads."""
        for name, given in (("context", context), ("context_mask", context_mask)):
            if given is not None and not self.cross:
                raise UsageError(f"this block has no cross-attention that could read a `{name}`")

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
