"""What is summed over the parts of a pass: amounts of work, sizes, parameters in use, cache growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import nn

from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.subject import Holdings
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
    """Parameters by dtype. repeated: those that a module holds under a second name."""

    by_dtype: Mapping[torch.dtype, int] = field(default_factory=dict)
    repeated: int = 0

    @staticmethod
    def of(modules: Sequence[nn.Module]) -> Size:
        """The size of modules that have no parameter in common."""
        by_dtype: dict[torch.dtype, int] = {}
        for module in modules:
            for parameter in module.parameters():
                by_dtype[parameter.dtype] = by_dtype.get(parameter.dtype, 0) + parameter.numel()
        return Size(by_dtype, Holdings.of(modules).repeated)

    def __add__(self, other: Size) -> Size:
        sums = dict(self.by_dtype)
        for dtype, numel in other.by_dtype.items():
            sums[dtype] = sums.get(dtype, 0) + numel
        return Size(sums, self.repeated + other.repeated)

    def __mul__(self, times: int) -> Size:
        return Size({dtype: numel * times for dtype, numel in self.by_dtype.items()}, self.repeated * times)

    @property
    def params(self) -> int:
        return sum(self.by_dtype.values())


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
