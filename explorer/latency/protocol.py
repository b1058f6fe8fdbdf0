"""The order of measuring: warm up every candidate, then rounds in which each runs once, in random order."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from explorer.latency.clock import Call, Clock
from explorer.latency.effort import Effort
from explorer.latency.statistics import is_valid, spread
from explorer.latency.timing import Failure, failure

T = TypeVar("T")

_AGREEING = 3
# Bounds for a clock that hardly moves: enough calls for one sample, enough readings for one warm-up.
_MOST_CALLS = 100_000
_MOST_READINGS = 1_000


@dataclass(frozen=True)
class Progress:
    """`done` of `total` steps of a stage: building, warming up, measuring."""

    stage: str
    done: int
    total: int


OnProgress = Callable[[Progress], object]


@dataclass(frozen=True)
class Warm:
    """A candidate that has been called until it was steady."""

    first_call_ms: float
    warmup: int
    """Calls so far, the first one included."""
    calls: int
    """Calls that fill one sample."""

    @property
    def lead(self) -> bool:
        """Whether an untimed call goes before each sample: it refills caches and the device's queue after the others.

        Not before a sample of one long call, where it would double the time for what is lost in its first moments.
        """
        return self.calls > 1


@dataclass(frozen=True)
class Samples:
    """The times of one candidate in milliseconds per call, one for each round."""

    times_ms: tuple[float, ...]
    warm: Warm


def interleave(
    calls: MutableMapping[str, Call], clock: Clock, effort: Effort, rng: random.Random, on_progress: OnProgress
) -> dict[str, Samples | Failure]:
    """The samples of every candidate, by key, or why there are none.

    A candidate that raises becomes a Failure and is taken out of `calls`, so that nothing keeps its memory; the
    others go on. KeyboardInterrupt passes through.
    """
    failed: dict[str, Failure] = {}
    warm: dict[str, Warm] = {}
    every = tuple(calls)
    for done, key in enumerate(every):
        on_progress(Progress("warming up", done, len(every)))
        outcome = attempt(partial(warm_up, calls[key], clock, effort), "warming up")
        if isinstance(outcome, Failure):
            failed[key] = _give_up(calls, key, outcome)
        else:
            warm[key] = outcome
    times: dict[str, list[float]] = {key: [] for key in calls}
    for done in range(effort.rounds):
        if not calls or _is_enough(times, warm, done, effort):
            break
        on_progress(Progress("measuring", done, effort.rounds))
        for key in rng.sample(tuple(calls), len(calls)):
            sample = attempt(partial(take_sample, calls[key], warm[key], clock), "measuring")
            if isinstance(sample, Failure):
                failed[key] = _give_up(calls, key, sample)
            else:
                times[key].append(sample)
    return {**failed, **{key: Samples(tuple(times[key]), warm[key]) for key in calls}}


def warm_up(call: Call, clock: Clock, effort: Effort) -> Warm:
    """Call until steady or to the limit of the effort; the first call is timed apart and counts for neither.

    A reading is the mean of as many calls as fill a sample: single short calls jitter more than `steady_within`.
    """
    first = clock.time(call, 1)
    readings, warmup, spent = [first], 1, 0.0
    while not _is_warm(readings, spent, effort):
        calls = calls_for(readings[-1], effort.sample_ms)
        elapsed = clock.time(call, calls)
        readings.append(elapsed / calls)
        warmup += calls
        spent += elapsed
    return Warm(first, warmup, calls_for(readings[-1], effort.sample_ms))


def take_sample(call: Call, warm: Warm, clock: Clock) -> float:
    """Milliseconds per call over the calls of one sample."""
    if warm.lead:
        call()
    return clock.time(call, warm.calls) / warm.calls


def calls_for(call_ms: float, sample_ms: float) -> int:
    """How many calls of `call_ms` fill `sample_ms`: ceil(sample_ms / call_ms), at least 1; 1 for an invalid reading."""
    if not is_valid(call_ms):
        return 1
    return max(1, min(math.ceil(sample_ms / call_ms), _MOST_CALLS))


def attempt(action: Callable[[], T], doing: str) -> T | Failure:
    """What the action returns, or the failure that its exception stands for."""
    try:
        return action()
    except Exception as error:
        return failure(error, doing)


def _is_warm(readings: Sequence[float], spent: float, effort: Effort) -> bool:
    if len(readings) > 1 and (spent >= effort.warm_limit_ms or len(readings) >= _MOST_READINGS):
        return True
    last = readings[-_AGREEING:]
    if len(last) < _AGREEING or spent < effort.warm_ms:
        return False
    return all(map(is_valid, last)) and spread(last) <= effort.steady_within


def _is_enough(times: Mapping[str, Sequence[float]], warm: Mapping[str, Warm], done: int, effort: Effort) -> bool:
    """Whether the samples so far took the budget: whole rounds only, so that every candidate has the same number."""
    spent = sum(sum(taken) * warm[key].calls for key, taken in times.items())
    return done >= effort.fewest_rounds and spent >= effort.budget_ms * len(times)


def _give_up(calls: MutableMapping[str, Call], key: str, why: Failure) -> Failure:
    del calls[key]
    gc.collect()  # a module with a reference cycle would keep its memory until some later collection
    return why
