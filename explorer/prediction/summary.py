"""What a calibration found, in figures that a person knows: rates, costs of launching, errors of predictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer.prediction.calibration import Calibration, OfDtype
from explorer.prediction.kernels import MIB
from explorer.prediction.rates import Rates


class Figure(NamedTuple):
    """One line: what, its value and its unit; dtype: "" where it holds for all."""

    what: str
    dtype: str
    value: float
    unit: str


def figures(calibration: Calibration) -> list[Figure]:
    """Rates of each dtype, costs of the host, and the errors of held-out blocks."""
    return [
        *(figure for dtype, of in calibration.dtypes.items() for figure in _rates(dtype, of.rates)),
        *(figure for dtype, of in calibration.dtypes.items() for figure in _host(dtype, of)),
        *(figure for dtype, of in calibration.dtypes.items() for figure in _errors(dtype, of)),
    ]


def _rates(dtype: str, rates: Rates) -> Iterator[Figure]:
    intensity, ns = rates.weights.points[-1]
    yield Figure("products, many tokens", dtype, intensity / ns, "GFLOP/s")
    yield Figure("weights, one token, in the nearest cache", dtype, 1 / rates.reach.points[0][1], "GB/s")
    yield Figure("weights, one token, from the memory", dtype, 1 / rates.reach.points[-1][1], "GB/s")
    intensity, ns = rates.causal.points[-1]
    yield Figure("causal attention, long", dtype, intensity / ns, "GFLOP/s")
    for size in (1, 16):
        yield Figure(
            f"copy, {size} MiB", dtype, 2 * size * MIB / rates.operators["copy"].at(2 * size * MIB) / 1e3, "GB/s"
        )
    yield Figure("a tiny addition", dtype, rates.overheads["pointwise"], "µs")


def _host(dtype: str, of: OfDtype) -> Iterator[Figure]:
    yield Figure("host: a pass as such", dtype, of.host.costs.once, "µs")
    yield Figure("host: calling a module", dtype, of.host.costs.call, "µs")
    yield Figure("host: code not in the cache", dtype, of.host.costs.code, "µs")
    yield Figure("host: after a large kernel, at most", dtype, of.host.refill.most, "µs")


def _errors(dtype: str, of: OfDtype) -> Iterator[Figure]:
    for phase, error in of.held_out.phases.items():
        yield Figure(f"held-out blocks, {phase}: median error", dtype, 100 * error, "%")
    yield Figure("held-out blocks: largest error", dtype, 100 * of.held_out.largest, "%")
    yield Figure("held-out ratios: largest error", dtype, of.held_out.ratio, "x")
    yield Figure("samples that nothing disturbed", dtype, 100 * of.clean, "%")
