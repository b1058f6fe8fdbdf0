"""What is known of a device: dense peaks, bandwidth, caches, and how much of them programs reach."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "bfloat16": "bf16",
        "float16": "fp16",
        "float32": "fp32",
        "float8_e4m3fn": "fp8",
        "float8_e5m2": "fp8",
    }
)
"""The column of the table that holds the peak of a dtype. float32 is not tf32: torch computes it in full by default."""
DIGITS = 12
"""Of a digest, in hexadecimal."""
BUILT_IN = "built-in table"
PEAKS = ("bf16", "fp16", "tf32", "fp32", "fp8")


@dataclass(frozen=True)
class Span:
    """A number that is known to lie between `low` and `high`, most likely at `point`."""

    point: float
    low: float
    high: float

    def around(self, point: float) -> Span:
        """The same span with another likely point, widened to hold it."""
        return Span(point, min(self.low, point), max(self.high, point))


@dataclass(frozen=True)
class HostCosts:
    """Microseconds: of the host for each eager kernel and each view, of the device for each kernel of a graph."""

    dispatch_us: Span
    view_us: float
    graph_node_us: float


@dataclass(frozen=True)
class Hardware:
    """One device of the table.

    match: what drivers call it. peaks: dense TFLOP/s by column (`PEAKS`), None where it has none. bandwidth_gbs: 1e9
    bytes a second. memory_gb: as the vendor prints it. llc_mib: the last shared cache, None where sources disagree.
    gemm, bandwidth: the share of the peak that matrix products, and of the bandwidth that copies reach. src: where the
    numbers stand. origin: the table, package or file that says so.
    """

    name: str
    match: tuple[str, ...]
    peaks: Mapping[str, float | None]
    bandwidth_gbs: float
    memory_gb: float
    llc_mib: float | None
    gemm: Span
    bandwidth: Span
    host: HostCosts
    src: str
    achievable_src: str | None = None
    note: str | None = None
    origin: str = BUILT_IN

    @property
    def sources(self) -> str:
        """Where the numbers stand, of the device and of what it reaches, and who else said so."""
        reached = f"; reached: {self.achievable_src}" if self.achievable_src else ""
        return f"{self.src}{reached}" + ("" if self.origin == BUILT_IN else f"; as {self.origin} says")

    def peak(self, dtype: str) -> float | None:
        """Dense TFLOP/s of products in a dtype of a workload; None: the table has none."""
        column = COLUMNS.get(dtype)
        return None if column is None else self.peaks.get(column)

    @property
    def digest(self) -> str:
        """A hash of all that an estimate rests on: two with the same digest are comparable."""
        spans = (self.gemm, self.bandwidth, self.host)
        told = (self.name, sorted(self.peaks.items()), self.bandwidth_gbs, *map(str, spans))
        return hashlib.sha256(repr(told).encode()).hexdigest()[:DIGITS]


def implied(flops: int, ms: float, hardware: Hardware, dtype: str | None = None) -> str | None:
    """Why a measured time cannot be: it implies more than the device's dense peak; None where it does not.

    flops: of matrix products of visible pairs, 1 multiply-add = 2, in `ms` milliseconds. dtype: of the products; None:
    the device's largest peak is the bound. float32 is held against tf32, which a user may have switched on.
    """
    peak = _bound(hardware, dtype)
    if peak is None or not flops:
        return None
    least_ms = flops / (peak * 1e9)
    if ms >= least_ms:
        return None
    return (
        f"{ms:.4g} ms for {flops:,} FLOPs implies {flops / ms / 1e9:.4g} TFLOP/s, more than the dense peak of "
        f"{hardware.name}, {peak:g} TFLOP/s ({hardware.src}): the clock was read before the work was done"
    )


def _bound(hardware: Hardware, dtype: str | None) -> float | None:
    columns = PEAKS if dtype is None else ("fp32", "tf32") if dtype == "float32" else (COLUMNS.get(dtype, ""),)
    known = [peak for column in columns if (peak := hardware.peaks.get(column)) is not None]
    return max(known, default=None)
