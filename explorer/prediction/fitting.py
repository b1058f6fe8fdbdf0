"""From times of kernels to the curves that a row's time is read off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.prediction.curves import Reach, Roof, TimeCurve
from explorer.prediction.kernels import LARGE_BYTES, Kernel
from explorer.prediction.rates import Rates


def rates_from(
    kernels: Sequence[Kernel], times: Mapping[str, float], launches: Mapping[str, float] | None = None
) -> Rates:
    """The curves through the times of all kernels, microseconds by key.

    launches: of the host for the tiny ones; None: the host is the device.
    """
    tiny = {kernel.group: times[kernel.key] for kernel in kernels if kernel.tiny}
    overheads = tiny if launches is None else {k.group: launches[k.key] for k in kernels if k.tiny}
    net = _Net(kernels, times, tiny)
    reach = Reach.through((kernel.footprint, time * 1e3 / kernel.weights) for kernel, time in net.of("footprint"))
    beside = _beside(net)
    attended = Reach.through((kernel.activations, time * 1e3 / kernel.activations) for kernel, time in net.of("cache"))
    plain = _of_attention(net, "attention", attended)
    return Rates(
        weights=_of_weights(net, reach, beside),
        beside_ns=beside,
        reach=reach,
        products=Roof.through(
            (kernel.flops / kernel.activations, time * 1e3 / kernel.activations) for kernel, time in net.of("products")
        ),
        attention=plain,
        causal=_above(_of_attention(net, "causal", attended), plain),
        attended=attended,
        operators={name: net.curve(name) for name in net.operators},
        fresh_ns=_fresh(net),
        overheads=overheads,
        nodes={} if launches is None else tiny,
    )


@dataclass(frozen=True)
class _Net:
    """Times of kernels without what a tiny call of the same takes."""

    kernels: Sequence[Kernel]
    times: Mapping[str, float]
    overheads: Mapping[str, float]

    def of(self, group: str) -> list[tuple[Kernel, float]]:
        """The kernels of a group, each with microseconds of its own: a tenth of its time at least."""
        overhead = self.overheads[_OVERHEAD_OF.get(group, group)]
        found = [(k, self.times[k.key]) for k in self.kernels if k.group == group and not k.tiny]
        return [(kernel, max(time - overhead, time / 10)) for kernel, time in found]

    @property
    def operators(self) -> list[str]:
        groups = dict.fromkeys(kernel.group for kernel in self.kernels if not kernel.tiny)
        return [group for group in groups if group in self.overheads]

    def curve(self, group: str) -> TimeCurve:
        """Microseconds by bytes; calls that take their operands in turn stand for one through all of these."""
        found = [(max(kernel.footprint, kernel.activations), kernel, time) for kernel, time in self.of(group)]
        return TimeCurve.through((size, time * size / kernel.activations) for size, kernel, time in found)


_OVERHEAD_OF: Mapping[str, str] = {
    **dict.fromkeys(("weights", "narrow", "footprint", "products"), "product"),
    **dict.fromkeys(("attention", "causal", "cache"), "fused"),
    "fresh": "copy",
}


def _of_attention(net: _Net, group: str, attended: Reach) -> Roof:
    """Attention by the bytes of its result, without what reading its operands takes."""
    points = []
    for kernel, time in net.of(group):
        read = kernel.activations - kernel.result
        own = max(time * 1e3 - read * attended.at(read), time * 1e3 / 4)
        points.append((kernel.flops / kernel.result, own / kernel.result))
    return Roof.through(points)


def _above(roof: Roof, other: Roof) -> Roof:
    """The higher of two roofs: what hides pairs is never faster than what computes as many and hides none."""
    places = sorted({place for place, _ in (*roof.points, *other.points)})
    return Roof.through((place, max(roof.at(place), other.at(place))) for place in places)


def _of_weights(net: _Net, reach: Reach, beside: float) -> Roof:
    """Products with weights, without what the activations beside them take, and as if the weights lay nearest."""
    points = []
    for kernel, time in net.of("weights"):
        further = reach.at(kernel.weights) - reach.nearest
        own = time * 1e3 - kernel.activations * beside - kernel.weights * further
        points.append((kernel.flops / kernel.weights, max(own, time * 1e3 / 4) / kernel.weights))
    return Roof.through(points)


def _fresh(net: _Net) -> float:
    """Nanoseconds of a byte of new memory: what a large copy takes beyond a smaller one, byte by byte."""
    ((large, time),) = net.of("fresh")
    return max(time - net.curve("copy").at(large.activations), 0.0) * 1e3 / LARGE_BYTES


def _beside(net: _Net) -> float:
    """Nanoseconds of a byte of activations: a wide and a narrow product differ in how many there are for each FLOP."""
    ((narrow, narrow_time),) = net.of("narrow")
    wide, wide_time = max(net.of("weights"), key=lambda pair: pair[0].flops)  # the first of two that are as large
    ratio = narrow.flops / wide.flops
    return max((narrow_time - ratio * wide_time) * 1e3 / (narrow.activations - ratio * wide.activations), 0.0)
