"""How fast a calibrated device works in one dtype: curves through the times of kernels, and a row's time by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from explorer.cost.ledger.rows import Row
from explorer.prediction.curves import Point, Reach, Roof, TimeCurve
from explorer.prediction.kernels import FRESH_FROM
from explorer.prediction.working_set import WorkingSet


class Split(NamedTuple):
    """Microseconds that a device works on a row: moving bytes, and computing while it does."""

    bandwidth: float = 0.0
    math: float = 0.0

    @property
    def total(self) -> float:
        return self.bandwidth + self.math


@dataclass(frozen=True)
class Rates:
    """Curves of one dtype; all times without what a call costs however small it is, which `overheads` holds.

    weights: a product with weights, by FLOPs for each byte of these, all of it in the cache. beside_ns: nanoseconds for
    each byte of activations beside them. reach: a byte of weights, by the bytes of all. products: of activations with
    each other. attention, causal: in one kernel that sees everything, or not, by FLOPs for each byte of the result;
    attended: what it reads besides, a byte by all that one call reads. operators: microseconds by bytes, of an operator
    or of a kind of rows. fresh_ns: nanoseconds for each byte of a result of more than `FRESH_FROM`, for which the
    system gives new memory. overheads: microseconds of the host for a tiny call, likewise; nodes: of the device for
    one, where the device is not the host.
    """

    weights: Roof
    beside_ns: float
    reach: Reach
    products: Roof
    attention: Roof
    causal: Roof
    attended: Reach
    operators: Mapping[str, TimeCurve]
    fresh_ns: float
    overheads: Mapping[str, float]
    nodes: Mapping[str, float]

    def split(self, row: Row, around: WorkingSet) -> Split:
        """What a device does for a row of a pass with such a working set."""
        if not row.kernels:
            return Split()
        nbytes = row.read.total + row.written.total
        flops = row.matmul_flops if row.matmul_flops_exact is None else row.matmul_flops_exact
        fresh = row.written.total * self.fresh_ns / 1e3 if row.written.total > FRESH_FROM else 0.0
        if row.kind != "fused" and flops and row.read.weights:
            # A bias is laid into the result before the product is added to it: one more pass over the result.
            beside = nbytes - row.read.weights + row.written.total * bool(row.work.cheap)
            split = self._with_weights(flops, row.read.weights, beside, around.weights)
        elif row.kind == "fused" and flops:
            split = self._attention(row, flops)
        elif flops:
            split = _under(self.products, flops, nbytes)
        else:
            split = self._element_by_element(row, nbytes, around.moved)
        return Split(split.bandwidth + fresh, split.math)

    def overhead(self, row: Row) -> float:
        """Microseconds of the host for a call however small it is; 0 for a row that launches nothing."""
        return self.overheads[self._name(row, self.overheads)] if row.kernels else 0.0

    def node(self, row: Row) -> float:
        """Microseconds of the device for a kernel however small it is; 0 where the host is the device."""
        return self.nodes[self._name(row, self.nodes)] if row.kernels and self.nodes else 0.0

    def _with_weights(self, flops: int, weights: int, activations: int, footprint: float) -> Split:
        split = _under(self.weights, flops, weights)
        further = self.reach.at(footprint) - self.reach.nearest
        moved = (weights * further + activations * self.beside_ns) / 1e3
        return Split(split.bandwidth + moved, split.math)

    def _attention(self, row: Row, flops: int) -> Split:
        hides = row.matmul_flops_exact not in (None, row.matmul_flops)
        split = _under(self.causal if hides else self.attention, flops, row.written.total)
        return Split(split.bandwidth + row.read.total * self.attended.at(row.read.total) / 1e3, split.math)

    def _element_by_element(self, row: Row, nbytes: int, moved: float) -> Split:
        """The operator's own time, but no less than copying its result takes where that lies as far away as this."""
        copy = self.operators["copy"]
        whole = self.operators[self._name(row, self.operators)].at(nbytes)
        afar = copy.at_rate_up_to(min(2 * row.written.total, nbytes), max(nbytes, moved))
        time = max(whole, afar)
        moving = min(time, max(copy.at(nbytes), afar))
        return Split(moving, time - moving)

    def _name(self, row: Row, known: Mapping[str, object]) -> str:
        """The operator itself, else what is most like it of what was timed."""
        bare = row.op.removesuffix("_backward")
        if bare in known:
            return bare
        kind = _LIKE.get(row.kind, row.kind)
        if kind == "pointwise" and row.work.transcendental:
            kind = "transcendental"
        return kind if kind in known else "pointwise"

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Rates:
        """What `to_dict` made, read again."""
        return Rates(
            weights=Roof(_points(data["weights"])),
            beside_ns=data["beside_ns"],
            reach=Reach(_points(data["reach"])),
            products=Roof(_points(data["products"])),
            attention=Roof(_points(data["attention"])),
            causal=Roof(_points(data["causal"])),
            attended=Reach(_points(data["attended"])),
            operators={name: TimeCurve(_points(curve)) for name, curve in data["operators"].items()},
            fresh_ns=data["fresh_ns"],
            overheads=data["overheads"],
            nodes=data["nodes"],
        )


_LIKE: Mapping[str, str] = {"indexing": "copy", "search": "reduction", "loss": "softmax", "random": "transcendental"}


def _under(roof: Roof, flops: int, nbytes: int) -> Split:
    if not nbytes:
        return Split()
    moving = roof.floor * nbytes / 1e3
    return Split(moving, roof.at(flops / nbytes) * nbytes / 1e3 - moving)


def _points(curve: Mapping[str, Any]) -> tuple[Point, ...]:
    return tuple((place, time) for place, time in curve["points"])
