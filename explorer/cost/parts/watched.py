"""A cache whose storages are known, so that traffic with it can be told from other traffic."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from explorer.assembly.cache import Cache, CacheView, Entries


class _WatchedView(CacheView):
    def _room(self, new: Tensor, window: int | None, every: int) -> Entries:
        entries = super()._room(new, window, every)
        self._note(entries.buffer)
        return entries

    def state(self, name: str, init: Tensor | Callable[[], Tensor]) -> Tensor:
        state = super().state(name, init)
        self._note(state)
        return state

    def replace(self, **tensors: Tensor) -> None:
        super().replace(**tensors)
        self._note(*tensors.values())

    def once(self, fn: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        tensors = super().once(fn)
        self._note(*(self._once or ()))
        return tensors

    def _note(self, *tensors: Tensor) -> None:
        assert isinstance(self._cache, WatchedCache), "the view of another cache"
        for tensor in tensors:
            storage = tensor.untyped_storage()
            self._cache.storages.add(storage._cdata)
            self._cache.kept.append(storage)


class WatchedCache(Cache):
    """A cache that collects the storages that it keeps. Those of states and of a source are known once they are made:
    what writes them writes activations, what reads them later reads the cache."""

    view: ClassVar[type[CacheView]] = _WatchedView

    def __init__(
        self,
        views: int,
        *,
        batch: int,
        capacity: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.storages: set[int] = set()
        self.kept: list[torch.UntypedStorage] = []  # alive, so that no other storage gets the address of an old state
        super().__init__(views, batch=batch, capacity=capacity, dtype=dtype, device=device)
