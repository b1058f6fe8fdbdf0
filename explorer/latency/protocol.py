"""The order of measuring: warm up every lane, then rounds in which each runs once, in random order."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from explorer.latency.clock import Call, Clock
from explorer.latency.effort import Effort
from explorer.latency.enough import Taken, fewest_clean, is_enough
from explorer.latency.failure import Failure, attempt
from explorer.latency.guard import Guard, watching
from explorer.latency.raw import Lane
from explorer.latency.statistics import is_valid, spread

T = TypeVar("T")

_AGREEING = 3
# Bounds for a clock that hardly moves: enough calls for one sample, enough readings for one warm-up.
_MOST_CALLS = 100_000
_MOST_READINGS = 1_000


@dataclass(frozen=True)
class Progress:
    """What is about to be done, and to which lane or candidate: `done` of `total` steps of a stage are behind.

    Stages: comparing (what is declared equal), building, warming up, measuring, inspecting. The steps of `measuring`
    are the clean rounds so far of the two compared lanes that have the fewest; once these are enough, rounds so far, of
    as many as ratios that scatter may take.
    """

    stage: str
    done: int
    total: int
    candidate: str = ""
    impl: str = ""
    regime: str = ""


OnProgress = Callable[[Progress], object]


@dataclass(frozen=True)
class Timed:
    """How a lane is timed.

    call: runs `each` steps. turn: calls that touch every copy of the weights; a sample is a multiple of it. most: calls
    in one sample at most. rehearsal: the clock of the warm-up, where that need not do all that `clock` does. compiles:
    how many compilations the call has set off so far. owner: what the call belongs to, kept as long as the lane.
    """

    call: Call
    clock: Clock
    each: int = 1
    turn: int = 1
    most: int = _MOST_CALLS
    rehearsal: Clock | None = None
    compiles: Callable[[], int] = int
    owner: Any = None


@dataclass(frozen=True)
class Warm:
    """A lane that has been called until it was steady: calls so far, and calls that fill one sample."""

    timed: Timed
    warmup: int
    calls: int

    @property
    def lead(self) -> bool:
        """Whether an untimed call goes before each sample: it refills caches and the device's queue after the others.

        Not before a sample of one long call, where it would double the time for what is lost in its first moments.
        """
        return self.calls > 1


@dataclass(frozen=True)
class Rounds:
    """Milliseconds a step of every lane, one for each round, None where there is none (see `take_sample`).

    disturbed: what disturbed each sample of a lane. rounds: of each round the first disturbance of all.
    """

    times_ms: Mapping[Lane, tuple[float | None, ...]]
    disturbed: Mapping[Lane, tuple[str | None, ...]]
    rounds: tuple[str | None, ...]
    failed: Mapping[Lane, Failure]


def warm_up(timed: Timed, effort: Effort) -> Warm:
    """Call until steady or to the limit of the effort; the first turn is timed apart and counts for neither.

    A reading is the mean of as many calls as fill a sample: single short calls jitter more than `steady_within`.
    """
    clock = timed.rehearsal or timed.clock
    readings, warmup, spent = [clock.time(timed.call, timed.turn) / timed.turn], timed.turn, 0.0
    while not _is_warm(readings, spent, effort):
        calls = calls_for(readings[-1], effort.sample_ms, timed)
        elapsed = clock.time(timed.call, calls)
        readings.append(elapsed / calls)
        warmup += calls
        spent += elapsed
    return Warm(timed, warmup, calls_for(readings[-1], effort.sample_ms, timed))


def interleave(
    lanes: MutableMapping[Lane, Warm],
    effort: Effort,
    rng: random.Random,
    guard: Guard,
    on_progress: OnProgress,
    baselines: Mapping[str, str | None] = MappingProxyType({}),
) -> Rounds:
    """Rounds of all lanes until the effort is spent. The guard watches each sample by itself.

    baselines: by candidate the one that it is compared with. A lane that raises becomes a Failure and is taken out of
    `lanes`, so that nothing keeps its memory; the others go on. KeyboardInterrupt passes through.
    """
    failed: dict[Lane, Failure] = {}
    taken = {lane: Taken() for lane in lanes}
    rounds: list[str | None] = []
    while taken and not is_enough(taken, baselines, effort):
        reasons = []
        clean = fewest_clean(taken, baselines)
        steps = (clean, effort.rounds) if clean < effort.rounds else (len(rounds), effort.most_rounds)
        for lane in rng.sample(tuple(lanes), len(lanes)):
            on_progress(Progress("measuring", *steps, lane.candidate, lane.impl, lane.regime))
            watch = watching(guard, lane.regime)
            watch.start()
            sample = attempt(partial(take_sample, lanes[lane]), "measuring")
            reasons.append(watch.stop())
            if isinstance(sample, Failure):
                failed[lane] = sample
                release(lanes, lane)
                del taken[lane]
            else:
                taken[lane].add(sample.time_ms, reasons[-1], sample.spent_ms)
        rounds.append(next((why for why in reasons if why is not None), None))
    times = {lane: tuple(one.times_ms) for lane, one in taken.items()}
    return Rounds(times, {lane: tuple(one.disturbed) for lane, one in taken.items()}, tuple(rounds), failed)


@dataclass(frozen=True)
class Sample:
    """Milliseconds a step, and what the sample took as a whole.

    time_ms: None where the clock gave no valid reading, and where a call was compiled again, which is no part of its
    time.
    """

    time_ms: float | None
    spent_ms: float


def take_sample(warm: Warm) -> Sample:
    """A sample of some calls, in which every copy of the weights is touched."""
    timed, calls = warm.timed, warm.calls
    assert calls % timed.turn == 0, f"{calls} calls leave some of the copies out that take {timed.turn}"
    if warm.lead:
        timed.call()
    compiled = timed.compiles()
    elapsed = timed.clock.time(timed.call, calls)
    if not is_valid(elapsed):
        return Sample(None, 0.0)
    return Sample(elapsed / (calls * timed.each) if timed.compiles() == compiled else None, elapsed)


def calls_for(call_ms: float, sample_ms: float, timed: Timed) -> int:
    """How many calls of `call_ms` fill `sample_ms`, in whole turns: one turn at least, and for an invalid reading."""
    wanted = min(math.ceil(sample_ms / call_ms), timed.most) if is_valid(call_ms) else 1
    return max(1, math.ceil(wanted / timed.turn)) * timed.turn


def release(lanes: MutableMapping[Lane, T], lane: Lane) -> None:
    """Let a lane go, and the memory that only it held."""
    lanes.pop(lane, None)
    gc.collect()  # a module with a reference cycle would keep its memory until some later collection


def _is_warm(readings: Sequence[float], spent: float, effort: Effort) -> bool:
    if len(readings) > 1 and (spent >= effort.warm_limit_ms or len(readings) >= _MOST_READINGS):
        return True
    last = readings[-_AGREEING:]
    if len(last) < _AGREEING or spent < effort.warm_ms:
        return False
    return all(map(is_valid, last)) and spread(last) <= effort.steady_within
