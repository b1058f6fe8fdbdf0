"""What a compiler would move at least: chains of element-wise rows, which hand tensors to each other, move their ends.

Rows of a chain run as if they were one kernel. It reads each storage from outside once, and writes of its results only
those that somebody else reads, or that leave. This is a bound: a real compiler splits a chain where a result must pass
through a matrix product, or a reduction, on its way from one of its rows to another.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from explorer.cost.ledger.rows import Row

FUSIBLE = frozenset(("pointwise", "reduction", "copy", "softmax", "norm", "random"))
"""Kinds of row that join a chain."""

Key = tuple[str, bool]
"""Part, and whether backward: a chain lies within one."""


class Touch(NamedTuple):
    """Bytes of a storage that a row reads or writes; they lie between `start` and `end`, counted from its beginning."""

    storage: int
    start: int
    end: int
    nbytes: int


class Access(NamedTuple):
    """All that one row reads and writes."""

    read: tuple[Touch, ...] = ()
    written: tuple[Touch, ...] = ()


UNTOUCHED = Access()


def fused_bytes(rows: Sequence[Row], accesses: Sequence[Access], made: Set[int], left: Set[int]) -> dict[Key, int]:
    """Bytes that each (part, direction) moves with its chains as one kernel each; rows without a part are none's.

    made: storages that a row, or an allocation, made. left: storages of tensors that are handed on.
    """
    chains = _Chains(rows, accesses)
    owners = chains.owners(made)
    wanted = left | chains.read_elsewhere(owners)
    moved = dict.fromkeys(((row.part, row.backward) for row in rows), 0)
    for index, row in enumerate(rows):
        if not chains.fusible[index]:
            moved[row.part, row.backward] += row.read.total + row.written.total
    for chain, ends in chains.ends().items():
        moved[rows[chain].part, rows[chain].backward] += ends.nbytes(chain, owners, wanted)
    return moved


class _Chains:
    """A union-find over rows: a chain is named after one of its rows; every other row is alone."""

    def __init__(self, rows: Sequence[Row], accesses: Sequence[Access]) -> None:
        self.fusible = [bool(row.part) and row.kind in FUSIBLE for row in rows]
        self._accesses = accesses
        self._parents = list(range(len(rows)))
        keys = [(row.part, row.backward) for row in rows]
        writers: dict[tuple[int, Key], list[int]] = {}
        for index, access in enumerate(accesses):
            if not self.fusible[index]:
                continue
            for touch in access.read:
                before = writers.get((touch.storage, keys[index]), [])
                for writer in before:
                    self._parents[self.chain(writer)] = self.chain(index)
                del before[1:]  # they are one chain now
            for touch in access.written:
                writers.setdefault((touch.storage, keys[index]), []).append(index)

    def chain(self, row: int) -> int:
        """The chain of a row."""
        while self._parents[row] != row:
            self._parents[row] = self._parents[self._parents[row]]
            row = self._parents[row]
        return row

    def owners(self, made: Set[int]) -> dict[int, int]:
        """The chain of the row that wrote first, for each storage that was made here."""
        owners: dict[int, int] = {}
        for index, access in enumerate(self._accesses):
            for touch in access.written:
                if touch.storage in made:
                    owners.setdefault(touch.storage, self.chain(index))
        return owners

    def read_elsewhere(self, owners: dict[int, int]) -> set[int]:
        """Storages that are read by a row outside the chain that owns them."""
        return {
            touch.storage
            for index, access in enumerate(self._accesses)
            for touch in access.read
            if owners.get(touch.storage) != self.chain(index)
        }

    def ends(self) -> dict[int, _Ends]:
        """What the rows of each chain read and write, by storage."""
        ends: dict[int, _Ends] = {}
        for index, access in enumerate(self._accesses):
            if self.fusible[index]:
                of_chain = ends.setdefault(self.chain(index), _Ends())
                for touch in access.read:
                    of_chain.read.setdefault(touch.storage, _Region()).add(touch)
                for touch in access.written:
                    of_chain.written.setdefault(touch.storage, _Region()).add(touch)
        return ends


@dataclass
class _Region:
    """Places of one storage that a chain touches, each once."""

    places: dict[int, int] = field(default_factory=dict)
    end: int = 0

    def add(self, touch: Touch) -> None:
        self.places[touch.start] = max(touch.nbytes, self.places.get(touch.start, 0))
        self.end = max(touch.end, self.end)

    @property
    def nbytes(self) -> int:
        """Views that begin in one place are the same bytes, up to the longest; no more than lie between the ends."""
        return min(sum(self.places.values()), self.end - min(self.places))


@dataclass
class _Ends:
    """What the rows of a chain read and write, by storage."""

    read: dict[int, _Region] = field(default_factory=dict)
    written: dict[int, _Region] = field(default_factory=dict)

    def nbytes(self, chain: int, owners: dict[int, int], wanted: Set[int]) -> int:
        """What it reads of others, what it writes that is wanted, and what it writes into storages of others."""
        read = sum(region.nbytes for storage, region in self.read.items() if owners.get(storage) != chain)
        kept = (s for s in self.written if owners.get(s) != chain or s in wanted)
        return read + sum(self.written[storage].nbytes for storage in kept)
