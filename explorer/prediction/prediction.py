"""A predicted latency: a number with its range, what it rests on, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explorer.errors import MeasureError

SHARES = ("launch", "bandwidth", "math")


@dataclass(frozen=True)
class Times:
    """Microseconds of one pass: of the host, and of the device's kernels, as such, moving bytes and computing.

    last: of the device's last kernel.
    """

    host: float
    nodes: float
    bandwidth: float
    math: float
    last: float = 0.0

    @property
    def device(self) -> float:
        return self.nodes + self.bandwidth + self.math

    def of(self, regime: str) -> float:
        """Microseconds in a regime of measuring.

        host: one after the other. throughput: the longer of the two, as both go on at once. device: the device alone.
        latency: the device finishes its last kernel after the host launched it, or has work of its own left.
        """
        if regime == "host":
            return self.host + self.device
        if regime == "device":
            return self.device
        both = max(self.host, self.device)
        return both if regime == "throughput" else max(both, self.host + self.last)

    def shares(self, regime: str) -> dict[str, float]:
        """Where the time goes, in sum 1: `launch` is what would be gone if launching cost nothing."""
        whole = self.of(regime)
        if not whole:
            return dict.fromkeys(SHARES, 0.0)
        moving, computing = self.bandwidth / whole, self.math / whole
        return dict(zip(SHARES, (max(1 - moving - computing, 0.0), moving, computing), strict=True))


_REGIMES: Mapping[str, tuple[str, ...]] = {"cpu": ("host",), "cuda": ("throughput", "device", "latency")}
_WITHOUT_GRAPHS = ("throughput", "latency")


def checked_regime(regime: str | None, kind: str) -> str:
    """The regime asked for, None: the headline. kind: of device, as torch names it.

    Raises: MeasureError where such a device has no such regime.
    """
    known = _REGIMES.get(kind, _WITHOUT_GRAPHS)
    if regime is None:
        return known[0]
    if regime not in known:
        raise MeasureError(f"not predicted: this device has no regime {regime!r}; it has: {', '.join(known)}")
    return regime


@dataclass(frozen=True)
class Prediction:
    """Milliseconds of one pass on a named device; None with the reason where they cannot be told.

    ms, low, high: a calibrated device's point with the error of held-out blocks around it, or an estimate's interval.
    shares: of launch, bandwidth and math in the time. basis: what the numbers rest on, spec: its hash. validated:
    whether held-out blocks confirmed them on this very device; `reason` says why not. cache: where weights are taken to
    lie, in the words of measurements.
    """

    device: str
    regime: str
    basis: str
    spec: str
    ms: float | None = None
    low: float | None = None
    high: float | None = None
    shares: Mapping[str, float] | None = None
    validated: bool = False
    reason: str | None = None
    impl: str = "eager"
    cache: str | None = None

    def entry(self) -> dict[str, Any]:
        """An entry of `latencies`."""
        return {
            "source": "predicted",
            "device": self.device,
            "impl": self.impl,
            "regime": self.regime,
            "cache": self.cache,
            "median_ms": self.ms,
            "low_ms": self.low,
            "high_ms": self.high,
            "basis": self.basis,
            "spec": self.spec,
            "shares": None if self.shares is None else dict(self.shares),
            "validated": self.validated,
            "reason": self.reason,
        }
