"""The storages between the parts of a pass, and the gradients that wait between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from torch import Tensor

from explorer.cost.parts.lies import Lies
from explorer.cost.parts.tape import Entry

Place = int | None
"""The number of a storage; None: a weight's or the cache's, which count elsewhere."""


class Between:
    """Numbers the storages that come into a pass from outside, or that its parts hand on.

    lies: where the new tensors of a part lie. sizes: bytes of each storage. came, went: for each part, by its place in
    the pass, those of its inputs and of its new tensors, in order.
    """

    def __init__(self, entries: Sequence[Entry], lies: Callable[[Entry], Lies]) -> None:
        self.entries = entries
        self.sizes: list[int] = []
        self.came: list[tuple[Place, ...]] = []
        self.went: list[tuple[Place, ...]] = []
        self._of: dict[int, Place] = {}
        for entry in entries:
            came = [self._met(tensor) for tensor in entry.inputs]
            went = self._made(lies(entry), came)
            self._of.update(zip(map(id, entry.outputs), went, strict=True))
            self.came.append(tuple(came))
            self.went.append(tuple(went))

    def places(self, tensors: Iterable[Tensor]) -> set[int]:
        """The storages in which these tensors lie."""
        found = (self._of[id(tensor)] for tensor in tensors)
        return {place for place in found if place is not None}

    def nbytes(self, places: Iterable[int]) -> int:
        """Bytes of some storages."""
        return sum(self.sizes[place] for place in places)

    def _met(self, tensor: Tensor) -> Place:
        if id(tensor) not in self._of:
            # What has no elements is a view of something that is there: an empty context.
            self._of[id(tensor)] = self._new(tensor.untyped_storage().nbytes() if tensor.numel() else 0)
        return self._of[id(tensor)]

    def _made(self, lies: Lies, came: Sequence[Place]) -> list[Place]:
        there = [*came, *map(self._new, lies.sizes)]
        return [None if at is None else there[at] for at in lies.at]

    def _new(self, nbytes: int) -> int:
        self.sizes.append(nbytes)
        return len(self.sizes) - 1


def outside(entries: Iterable[Entry]) -> list[Tensor]:
    """The tensors that come into some parts of a pass from elsewhere."""
    made: set[int] = set()
    found: dict[int, Tensor] = {}
    for entry in entries:
        found.update((id(tensor), tensor) for tensor in entry.inputs if id(tensor) not in made)
        made.update(map(id, entry.outputs))
    return list(found.values())


def last_reads(entries: Iterable[Entry]) -> dict[int, int]:
    """By the id of a tensor the place of the last part that reads it."""
    return {id(tensor): place for place, entry in enumerate(entries) for tensor in entry.inputs}


def waiting(entries: Sequence[Entry], scope: range, last: dict[int, int]) -> list[int]:
    """Bytes of gradients that wait while each part of a scope runs backward: of tensors made before and read after it.

    scope: places of parts in the pass; of tensors that come into it or are made in it. last: see `last_reads`.
    """
    here = [entries[place] for place in scope]
    made: list[tuple[int, Tensor]] = [(-1, tensor) for tensor in outside(here)]
    made += [(place, tensor) for place, entry in enumerate(here) for tensor in entry.outputs]
    steps = [0] * (len(here) + 1)
    for place, tensor in made:
        end = min(last.get(id(tensor), -1) - scope.start, len(here))
        if tensor.requires_grad and place + 1 < end:
            nbytes = tensor.numel() * tensor.itemsize
            steps[place + 1] += nbytes
            steps[end] -= nbytes
    return list(accumulate(steps[:-1]))
