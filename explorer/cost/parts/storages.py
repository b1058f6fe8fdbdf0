"""Which storages operators make, how large they are, and how long they live: memory as torch's eager mode uses it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Storages(TorchDispatchMode):
    """While it is on, each storage that an operator makes gets a number and is written down until it is freed.

    Storages, not tensors: a view makes none. Works on fake and on real tensors. What a kernel takes and gives back
    before it returns is not seen. keeps: asked for each operator, and its answer kept with the storages it makes.
    """

    supports_higher_order_operators = True

    def __init__(self, keeps: Callable[[Any], bool] | None = None) -> None:
        super().__init__()
        self.nbytes: list[int] = []
        """Bytes of each storage, by number."""
        self.kept: set[int] = set()
        """Numbers of those made by operators for which `keeps` is true."""
        self._keeps = keeps
        self._log: list[tuple[int | None, int]] = []  # (number, bytes more), in the order of time
        # By address, which the next storage may get: of those that live, the number, or None for one made elsewhere.
        self._living: dict[int, int | None] = {}
        self._refs: dict[int, weakref.ref[Any]] = {}

    def number(self, tensor: Tensor) -> int | None:
        """The number of a tensor's storage; None where it was not made while this was on."""
        return self._living.get(address(tensor))

    def alive(self, apart: Collection[int | None] = frozenset()) -> list[int]:
        """Bytes alive after each step from the beginning on: what was made so far less what was freed.

        Storages made elsewhere count by being freed: while a state is replaced the old one is there beside the new one.
        apart: numbers of those that do not count.
        """
        steps = [nbytes for number, nbytes in self._log if number is None or number not in apart]
        return list(accumulate(steps, initial=0))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:  # fake tensors are asked for theirs more often than for all else
            return func(*args, **kwargs)
        for tensor in _tensors((*args, *kwargs.values())):
            self._meet(tensor, elsewhere=True)
        out = func(*args, **kwargs)
        keep = self._keeps is not None and self._keeps(func)
        for tensor in _tensors((out,)):
            number = self._meet(tensor, elsewhere=False)
            if keep and number is not None:
                self.kept.add(number)
        return out

    def _meet(self, tensor: Tensor, *, elsewhere: bool) -> int | None:
        """The number of a storage, which is written down when it is seen for the first time."""
        storage = tensor.untyped_storage()
        place: int = storage._cdata
        if place in self._living:
            return self._living[place]
        number = None if elsewhere else len(self.nbytes)
        nbytes = storage.nbytes()
        self._living[place] = number
        self._refs[place] = weakref.ref(storage, lambda _: self._free(place, nbytes))
        if number is not None:
            self.nbytes.append(nbytes)
            self._log.append((number, nbytes))
        return number

    def _free(self, place: int, nbytes: int) -> None:
        self._log.append((self._living.pop(place), -nbytes))
        del self._refs[place]


def address(tensor: Tensor) -> int:
    """Where a tensor's storage lies: equal for views of one, as long as it lives."""
    place: int = tensor.untyped_storage()._cdata
    return place


def _tensors(given: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among an operator's arguments or results: single ones, and those in lists."""
    for item in given:
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, list | tuple):
            yield from _tensors(item)
