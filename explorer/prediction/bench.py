"""Everything that a calibration runs in one dtype, and what its times say of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from explorer.assembly.construction import dtype_of
from explorer.blueprint.workload import DTYPE_BYTES
from explorer.errors import MeasureError
from explorer.latency.clock import Call
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.memory import free_bytes
from explorer.latency.regimes import Regime
from explorer.prediction.calibration import HeldOut
from explorer.prediction.fitting import rates_from
from explorer.prediction.host import HostFit, TinyPass
from explorer.prediction.kernels import MIB, Draw, Kernel, kernels
from explorer.prediction.passes import pass_times
from explorer.prediction.rates import Rates
from explorer.prediction.sampling import Lane, Regimes, regimes
from explorer.prediction.specimens import REFILLED, Specimen, held_out, tiny

T = TypeVar("T")

_TIMES_THE_CACHE = 4
_CACHE_IF_UNKNOWN = 64 * MIB
_SHARE_OF_MEMORY = 0.06
_SHORT_MS, _LONG_MS = 4.0, 20.0
_LAUNCH, _REFILLED = "launch", "after a large kernel"


@dataclass(frozen=True)
class Bench:
    """Everything that is run in one dtype. held_out: what the curves and costs that come out are tried on."""

    dtype: str
    device: str
    regimes: Regimes
    kernels: tuple[Kernel, ...]
    tiny: tuple[Specimen, ...]
    held_out: tuple[Specimen, ...]

    @staticmethod
    def of(dtype: str, device: str, blocks: tuple[Specimen, ...] | None = None) -> Bench:
        """blocks: to hold out; None: the usual ones."""
        most = _most_weights(device)
        blocks = held_out(dtype, most) if blocks is None else blocks
        return Bench(dtype, device, regimes(device), kernels(DTYPE_BYTES[dtype], most), tiny(dtype), blocks)

    def lanes(self) -> Iterator[tuple[str, Lane]]:
        """What is timed, by its key and dtype. Long samples where weights have to find their place in the caches."""
        draw = Draw(dtype_of(self.dtype), self.device)
        for kernel in self.kernels:
            calls = self._made(kernel.key, partial(kernel.build, draw))
            sample_ms = _LONG_MS if kernel.weights or kernel.footprint else _SHORT_MS
            yield self._key(kernel.key), _lane(self.regimes.kernels, calls, sample_ms)
            if kernel.tiny and not self.regimes.on_host:
                yield self._key(kernel.key, _LAUNCH), _lane(self.regimes.passes, calls, _SHORT_MS)
        if self.regimes.on_host:
            yield from self._after_large_kernels(draw)
        for specimens, sample_ms in ((self.tiny, _SHORT_MS), (self.held_out, _LONG_MS)):
            for specimen in specimens:
                calls = self._made(specimen.key, partial(specimen.build, self.device))
                yield self._key(specimen.key), _lane(self.regimes.passes, calls, sample_ms)

    def _after_large_kernels(self, draw: Draw) -> Iterator[tuple[str, Lane]]:
        """Tiny blocks, each call behind a product whose weights push all else out of the nearest cache."""
        for specimen in self.refilled:
            product, *_ = self._made(self.large.key, partial(self.large.build, draw))
            (tiny,) = self._made(specimen.key, partial(specimen.build, self.device))
            both = partial(_one_after_the_other, product, tiny)
            yield self._key(specimen.key, _REFILLED), _lane(self.regimes.passes, [both], _LONG_MS)

    @property
    def large(self) -> Kernel:
        """One token times weights that fit in no cache of a single core."""
        return next(kernel for kernel in self.kernels if kernel.group == "weights")

    @property
    def refilled(self) -> list[Specimen]:
        """The tiny blocks that are timed after large kernels too."""
        return [one for one in self.tiny if one.name in REFILLED and one.workload.phase == "prefill"]

    def rates(self, us: Mapping[str, float]) -> Rates:
        """What the times of the kernels, in microseconds by key, say of the device."""
        times = {kernel.key: us[self._key(kernel.key)] for kernel in self.kernels}
        if self.regimes.on_host:
            return rates_from(self.kernels, times)
        launches = {kernel.key: us[self._key(kernel.key, _LAUNCH)] for kernel in self.kernels if kernel.tiny}
        return rates_from(self.kernels, times, launches)

    def tiny_passes(self, us: Mapping[str, float], rates: Rates) -> Iterator[TinyPass]:
        """What the host took for the tiny blocks: where it works itself, without the work."""
        for specimen in self.tiny:
            time = us[self._key(specimen.key)]
            if not self.regimes.on_host:
                yield TinyPass(specimen.rows, rates, time)
                continue
            work = sum(rates.split(row, specimen.around).total for row in specimen.rows)
            both = us.get(self._key(specimen.key, _REFILLED))
            more = None if both is None else both - us[self._key(self.large.key)] - time
            host = max(time - work, time / 2)
            yield TinyPass(specimen.rows, rates, host, None if more is None else host + more)

    def errors(self, us: Mapping[str, float], rates: Rates, host: HostFit) -> HeldOut:
        """How far predictions of the held-out blocks are off."""
        regime = self.regimes.passes.name
        blocks: dict[str, tuple[float, float]] = {}
        for specimen in self.held_out:
            predicted = pass_times(specimen.rows, specimen.around, rates, host).of(regime)
            blocks[specimen.key] = us[self._key(specimen.key)] / 1e3, predicted / 1e3
        return HeldOut.of(blocks, {specimen.key: specimen.workload for specimen in self.held_out})

    def _made(self, key: str, build: Callable[[], T]) -> T:
        try:
            return build()
        except Exception as error:
            raise MeasureError(f"{self.device} cannot be calibrated in {self.dtype}: {key}: {error}") from error

    def _key(self, *words: str) -> str:
        return " | ".join((*words, self.dtype))


def _lane(regime: Regime, calls: Sequence[Call], sample_ms: float) -> Lane:
    return Lane(regime.timed(calls), sample_ms, regime.name)


def _one_after_the_other(first: Call, second: Call) -> None:
    first()
    second()


def _most_weights(device: str) -> int:
    """Bytes that take every cache several times over, as far as a share of the memory allows."""
    wanted = _TIMES_THE_CACHE * (last_cache_bytes(device) or _CACHE_IF_UNKNOWN)
    free = free_bytes(device)
    return wanted if free is None else min(wanted, int(free * _SHARE_OF_MEMORY))
