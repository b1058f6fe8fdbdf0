"""What a pass costs on the host: launching kernels, making views, calling modules. Fitted to tiny blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from explorer.cost.ledger.rows import Row
from explorer.prediction.rates import Rates
from explorer.prediction.rows import CALL


@dataclass(frozen=True)
class HostFit:
    """Microseconds on the host: of a pass as such, of each kernel beside its overhead, each view, each module called.

    overhead: what to take of the overheads of single calls, which were timed in a loop of their own. cached: of each
    kernel that reads or writes a cache, for keeping its books.
    """

    once: float
    overhead: float
    kernel: float
    view: float
    call: float
    cached: float

    def time(self, rows: Sequence[Row], rates: Rates) -> float:
        """Microseconds of a pass."""
        return sum(weight * count for weight, count in zip(self._weights, features(rows, rates), strict=True))

    @property
    def _weights(self) -> tuple[float, ...]:
        return (self.once, self.overhead, self.kernel, self.view, self.call, self.cached)

    def to_dict(self) -> dict[str, float]:
        """As JSON takes it."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> HostFit:
        """What `to_dict` made, read again."""
        return HostFit(**data)


def features(rows: Sequence[Row], rates: Rates) -> tuple[float, ...]:
    """What the fit multiplies, in the order of its fields."""
    kernels = [row for row in rows if row.kernels]
    return (
        1.0,
        sum(rates.overhead(row) for row in kernels),
        float(len(kernels)),
        float(sum(row.kind in ("view", "allocation") for row in rows)),
        float(sum(row.kind == CALL for row in rows)),
        float(sum(bool(row.read.cache or row.written.cache) for row in kernels)),
    )


def fit_host(passes: Sequence[tuple[Sequence[Row], float]], rates: Rates) -> HostFit:
    """The fit to tiny passes: rows, and the microseconds that the host took for them. No weight is negative.

    Each pass counts by the square of its relative error: the short ones matter as much as the long ones.
    """
    import numpy as np
    from scipy.optimize import nnls

    matrix = np.array([features(rows, rates) for rows, _ in passes])
    times = np.array([time for _, time in passes])
    weights, _ = nnls(matrix / times[:, None], np.ones(len(times)))
    return HostFit(*map(float, weights))
