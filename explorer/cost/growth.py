"""How the cache grows with a token: read off a cache that is filled from nothing."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from explorer.assembly.cache import Cache, CacheView
from explorer.assembly.construction import dtype_of
from explorer.blueprint.plan import block_label
from explorer.cost.parts.attributes import as_built
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import META, Held, Observations, Step, fill
from explorer.cost.parts.subject import Subject
from explorer.cost.parts.tape import Entry
from explorer.cost.parts.walk import walk


@dataclass(frozen=True)
class Rate:
    """Bytes by which the cache of one sequence grows with a token: while windows are open, and once all are full."""

    opened: Fraction = Fraction(0)
    full: Fraction = Fraction(0)

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.opened + other.opened, self.full + other.full)

    def __mul__(self, times: int) -> Rate:
        return Rate(self.opened * times, self.full * times)

    def numbers(self) -> tuple[float, float]:
        """Both, an int where it is one."""
        opened, full = (v.numerator if v.denominator == 1 else float(v) for v in (self.opened, self.full))
        return opened, full


@dataclass(frozen=True)
class Growth:
    """How the cache of one sequence grows: in all, and in the last layer of each block."""

    whole: Rate = Rate()
    layers: Mapping[str, Rate] = field(default_factory=dict)


@dataclass
class Growths:
    """The rates of all parts that were looked at."""

    _rates: dict[Hashable, Rate] = field(default_factory=dict)

    def of(self, subject: Subject, kv_dtype: str, longest: int | None, observations: Observations) -> Growth | str:
        """How the cache grows with a token, over one compression period, or why that cannot be observed.

        The period: tokens after which everything that a part keeps has grown by whole entries, 1 without compression.
        longest: tokens that positions allow (None: any number): a shorter text is then all there is, and no wider
        window ever full.

        Raises: PluginError where a component's code fails.
        """
        with understood(subject.label) as trouble:
            if not subject.caches:
                return Growth()
            dtype = dtype_of(kv_dtype)
            step = Step(1, 1, 1 if subject.reads_source else None, held=Held(1, 0, 1, dtype))
            entries = [entry for entry in walk(subject, step, observations).entries if entry.part.cached]
            whole, layers = Rate(), dict[str, Rate]()
            last: dict[str, int] = {}
            for entry in entries:
                rate, role = self.rate(entry, dtype, longest), entry.part.role
                label = block_label(role.stack, role.block)
                whole += rate
                same = last.get(label) == role.layer
                layers[label] = layers[label] + rate if same else rate
                last[label] = role.layer or 0
            return Growth(whole, layers)
        return trouble.reason

    def rate(self, entry: Entry, dtype: torch.dtype, longest: int | None) -> Rate:
        """How what one attention keeps grows; for `longest` see `of`."""
        key = entry.observation.part.key, entry.observation.inputs, dtype, longest
        if key not in self._rates:
            self._rates[key] = _observed(entry, dtype, longest)
        return self._rates[key]


def _observed(entry: Entry, dtype: torch.dtype, longest: int | None) -> Rate:
    tokens = 1
    view = _from_nothing(entry, tokens, dtype)
    period = math.lcm(*(written.every for written in view.written()))
    if period > 1:
        tokens = period if longest is None else min(period, longest)
        view = _from_nothing(entry, tokens, dtype)
    written = view.written()
    for_ever = [w for w in written if w.full is None or (longest is not None and w.full >= longest)]
    return Rate(*(Fraction(sum(w.nbytes for w in some), tokens) for some in (written, for_ever)))


def _from_nothing(entry: Entry, tokens: int, dtype: torch.dtype) -> CacheView:
    """One sequence of so many tokens through an empty cache, and the source where one is read."""
    cache = Cache(1, batch=1, capacity=tokens, dtype=dtype, device=META)
    with as_built(entry.part):
        fill(entry.part, entry.observation.inputs, cache, tokens, 1)
    return cache.views[0]
