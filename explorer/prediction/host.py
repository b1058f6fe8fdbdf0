"""What a pass costs on the host: launching kernels, making views, calling modules. Fitted to tiny blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from explorer.cost.ledger.rows import Row
from explorer.prediction.kernels import MIB
from explorer.prediction.rates import Rates
from explorer.prediction.rows import CALL

NEAREST_CACHE = 2 * MIB
"""Bytes of the cache that a core has for itself, about: weights of so many bytes leave nothing else in it."""


@dataclass(frozen=True)
class HostCosts:
    """Microseconds: `once` for a pass, and for each view, each module called, each place in the `code`.

    overhead: what to take of the overheads of single calls, which were timed in loops that do nothing else. code: of
    each kind of kernel that a part of the block calls, however often: the first finds its instructions cold. attention:
    of each part that attends in one kernel, for its rules and its heads. cached: of each that keeps keys and values.
    """

    once: float = 0.0
    overhead: float = 0.0
    view: float = 0.0
    call: float = 0.0
    code: float = 0.0
    attention: float = 0.0
    cached: float = 0.0

    def time(self, rows: Sequence[Row], rates: Rates) -> float:
        """Microseconds of a pass that moves so little that caches stay as they are."""
        return sum(cost * count for cost, count in zip(vars(self).values(), features(rows, rates), strict=True))


@dataclass(frozen=True)
class Refill:
    """What it costs the host, in microseconds, when kernels push its code and data out of a core's own cache.

    share: of the time of a pass, as long as all of it is pushed out; most: of what one kernel pushed out, when there is
    no more to fetch.
    """

    share: float = 0.0
    most: float = 0.0

    def time(self, host: float, rows: Sequence[Row], moved: float) -> float:
        """For a pass of `host` microseconds that moves so many different bytes.

        Nothing as long as these leave half of the cache, all where they leave none. Weights that fill the cache push
        the host's code and data out once more.
        """
        pushed_out = min(max(2 * moved / NEAREST_CACHE - 1, 0.0), 1.0)
        times = max(sum(row.read.weights >= NEAREST_CACHE for row in rows), 1)
        return min(self.share * host, self.most * times) * pushed_out


@dataclass(frozen=True)
class HostFit:
    """Costs of the host in small passes, and what large kernels add to them where the host runs them itself."""

    costs: HostCosts
    refill: Refill = Refill()

    def time(self, rows: Sequence[Row], rates: Rates, moved: float) -> float:
        """Microseconds of a pass that moves so many different bytes."""
        small = self.costs.time(rows, rates)
        return small + self.refill.time(small, rows, moved)

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> HostFit:
        """What `to_dict` made, read again."""
        return HostFit(HostCosts(**data["costs"]), Refill(**data["refill"]))


def features(rows: Sequence[Row], rates: Rates) -> tuple[float, ...]:
    """What the costs multiply, in the order of their fields."""
    return (
        1.0,
        sum(rates.overhead(row) for row in rows),
        float(sum(row.kind in ("view", "allocation") for row in rows)),
        float(sum(row.kind == CALL for row in rows)),
        float(len({(row.kind, row.part) for row in rows if row.kernels})),
        float(len({row.part for row in rows if row.kind == "fused"})),
        float(len({row.part for row in rows if row.read.cache or row.written.cache})),
    )


@dataclass(frozen=True)
class TinyPass:
    """A pass whose time is the host's: its rows, the rates of its dtype, and its microseconds.

    refilled: microseconds of the same pass when large kernels ran before it, without theirs; None: not timed.
    """

    rows: Sequence[Row]
    rates: Rates
    us: float
    refilled: float | None = None


def fit_host(passes: Sequence[TinyPass]) -> HostFit:
    """The costs with the least squares of relative errors over tiny passes, none of them negative; and the refill."""
    import numpy as np
    from scipy.optimize import nnls

    matrix = np.array([features(one.rows, one.rates) for one in passes])
    times = np.array([one.us for one in passes])
    weights, _ = nnls(matrix / times[:, None], np.ones(len(times)))
    return HostFit(HostCosts(*map(float, weights)), _refill(passes))


def _refill(passes: Sequence[TinyPass]) -> Refill:
    """From what was added to the passes that were timed both ways: the largest share of one, and the most."""
    both = [(one.us, max(one.refilled - one.us, 0.0)) for one in passes if one.refilled is not None]
    if not both:
        return Refill()
    return Refill(max(more / us for us, more in both), max(more for _, more in both))
