"""Times of many short calls, one after the other in random order; samples that something disturbed do not count."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from explorer.errors import MeasureError
from explorer.latency.guard import Guard, watching
from explorer.latency.protocol import Timed, calls_for
from explorer.latency.regimes import Regime, regimes_for
from explorer.latency.statistics import is_valid, median, quantile

OnProgress = Callable[[str, int, int], object]
"""(stage, steps behind, steps in all)"""


@dataclass(frozen=True)
class Plan:
    """How much is sampled. Rounds end once every lane has `clean` undisturbed samples, at `rounds` or at `seconds`.

    clean_long: of lanes whose one call is longer than a sample. warm: calls of each lane before the first round.
    """

    clean: int = 9
    clean_long: int = 5
    rounds: int = 30
    seconds: float = 15.0
    warm: int = 3
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Samples:
    """Milliseconds of one call by lane, and the share of samples in which nothing else was seen."""

    ms: Mapping[str, float]
    clean: float


@dataclass(frozen=True)
class Lane:
    """A call and how it is timed; sample_ms: of its calls together, which a long call fills alone."""

    timed: Timed
    sample_ms: float = 4.0
    regime: str = "host"


@dataclass
class _Running:
    timed: Timed
    calls: int
    wanted: int
    regime: str
    clean: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        """The median of the clean samples; with few of them what a tenth of all stays below, which bursts miss."""
        if len(self.clean) >= _FEWEST_CLEAN:
            return median(self.clean)
        return quantile([*self.clean, *self.disturbed], 0.1)


_FEWEST_CLEAN = 3


@dataclass(frozen=True)
class Regimes:
    """How a device times its kernels, how whole passes, and whether its host works them off itself."""

    kernels: Regime
    passes: Regime

    @property
    def on_host(self) -> bool:
        return self.kernels.name == "host"


def regimes(device: str) -> Regimes:
    """The device alone where it has such a regime, and its headline."""
    known = {regime.name: regime for regime in regimes_for(device)}
    headline = next(iter(known.values()))
    return Regimes(known.get("device", headline), headline)


def sample(
    lanes: Mapping[str, Lane],
    guard: Guard,
    rng: random.Random,
    plan: Plan | None = None,
    on_progress: OnProgress | None = None,
) -> Samples:
    """Sample all lanes in the same rounds.

    Raises: MeasureError where a lane gives no valid reading at all; whatever a call raises.
    """
    plan, told = plan or Plan(), on_progress or (lambda stage, done, total: None)
    running = {}
    for warmed, (key, cold) in enumerate(lanes.items()):
        told("warming up", warmed, len(lanes))
        running[key] = _warmed_up(cold, plan)
    end, done = plan.now() + plan.seconds, 0
    while done < plan.rounds:
        wanting = [lane for lane in running.values() if len(lane.clean) < lane.wanted]
        told("measuring", done, plan.rounds)
        for lane in rng.sample(wanting, len(wanting)):
            if done >= _FEWEST_CLEAN and plan.now() > end:
                return _samples(running)
            _take(lane, watching(guard, lane.regime))
        if not wanting:
            break
        done += 1
    return _samples(running)


def _warmed_up(lane: Lane, plan: Plan) -> _Running:
    timed = lane.timed
    readings = [timed.clock.time(timed.call, timed.turn) / timed.turn for _ in range(plan.warm)]
    calls = calls_for(min(readings), lane.sample_ms, timed)
    return _Running(timed, calls, plan.clean if calls > 1 else plan.clean_long, lane.regime)


def _take(lane: _Running, guard: Guard) -> None:
    timed = lane.timed
    if lane.calls > 1:
        timed.call()  # brings back into the caches what other lanes pushed out
    guard.start()
    elapsed = timed.clock.time(timed.call, lane.calls)
    why = guard.stop()
    if is_valid(elapsed):
        (lane.clean if why is None else lane.disturbed).append(elapsed / (lane.calls * timed.each))


def _samples(lanes: Mapping[str, _Running]) -> Samples:
    for key, lane in lanes.items():
        if not lane.clean and not lane.disturbed:
            raise MeasureError(f"{key}: no valid sample: all readings were zero, negative or not finite")
    clean = sum(len(lane.clean) for lane in lanes.values())
    taken = clean + sum(len(lane.disturbed) for lane in lanes.values())
    return Samples({key: lane.ms for key, lane in lanes.items()}, clean / taken)
