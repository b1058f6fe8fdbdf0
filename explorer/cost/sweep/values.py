"""What is summed over the parts of a pass: amounts of work, sizes, parameters in use, cache growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.subject import Holdings
from explorer.cost.stored import Parameters
from explorer.cost.usage import Uses


@dataclass(frozen=True)
class Amount:
    """Counts by kind of part (see `kind_of`), and bytes held in a cache."""

    by_kind: Mapping[str, Counts] = field(default_factory=dict)
    cache_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        kinds = dict(self.by_kind)
        for kind, counts in other.by_kind.items():
            kinds[kind] = kinds[kind] + counts if kind in kinds else counts
        return Amount(kinds, self.cache_bytes + other.cache_bytes)

    def __mul__(self, times: int) -> Amount:
        return Amount({kind: counts * times for kind, counts in self.by_kind.items()}, self.cache_bytes * times)

    @cached_property
    def counts(self) -> Counts:
        return sum(self.by_kind.values(), Counts())


@dataclass(frozen=True)
class Size:
    """Parameters by how they are stored. repeated: those that a module holds under a second name."""

    stored: Parameters = field(default_factory=dict)
    repeated: int = 0

    @staticmethod
    def of(modules: Sequence[nn.Module]) -> Size:
        """The size of modules that have no parameter in common."""
        held = Holdings.of(modules)
        return Size(held.stored, held.repeated)

    def __add__(self, other: Size) -> Size:
        sums = dict(self.stored)
        for stored, count in other.stored.items():
            sums[stored] = sums.get(stored, 0) + count
        return Size(sums, self.repeated + other.repeated)

    def __mul__(self, times: int) -> Size:
        return Size({stored: count * times for stored, count in self.stored.items()}, self.repeated * times)

    @property
    def params(self) -> int:
        return sum(self.stored.values())


@dataclass(frozen=True)
class Use:
    """Parameters that one token uses; None with the reason."""

    uses: Uses = (0, None)

    def __add__(self, other: Use) -> Use:
        (one, reason), (more, another) = self.uses, other.uses
        if one is None or more is None:
            return Use((None, reason or another))
        return Use((one + more, None))

    def __mul__(self, times: int) -> Use:
        used, reason = self.uses
        return Use((None if used is None else used * times, reason)) if times else Use()
