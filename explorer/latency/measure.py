"""Measure candidates side by side on one device."""

from __future__ import annotations

import gc
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from explorer.errors import UsageError
from explorer.latency.clock import Call, Clock, clock_for
from explorer.latency.device import device_name
from explorer.latency.effort import Effort, effort_for
from explorer.latency.memory import free_bytes
from explorer.latency.protocol import OnProgress, Progress, Samples, attempt, interleave
from explorer.latency.statistics import summarise
from explorer.latency.timing import Failure, Timing
from explorer.latency.undisturbed import undisturbed

_SHARE_FOR_WEIGHTS = 0.8


@dataclass(frozen=True)
class Candidate:
    """Something to time. `build()` makes it ready on the device and returns the call that is timed."""

    key: str
    build: Callable[[], Call]
    least_bytes: int = 0
    """What it is known to need on the device (weights, cache): a candidate that cannot fit is not tried. On a CPU
    trying would not raise: the system would end the whole process."""


@dataclass(frozen=True)
class _Bench:
    """Where, with what and how long candidates are measured."""

    device: str
    name: str
    clock: Clock
    effort: Effort
    rng: random.Random
    threads: int
    on_progress: OnProgress


def measure(
    candidates: Sequence[Candidate],
    *,
    device: str,
    effort: str | Effort = "default",
    seed: int = 0,
    clock: Clock | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Timing | Failure]:
    """A timing of every candidate, by key in the order given, or why there is none.

    All are measured in the same interleaved rounds. Those for which there is no memory beside the others are
    measured alone afterwards (`Timing.together` says so). `seed` draws the order within the rounds. Torch's global
    state is left as it was. Raises UsageError for an unknown effort and for two candidates with one key.
    """
    import torch

    _refuse_repeated_keys(candidates)
    bench = _Bench(
        device=device,
        name=device_name(device),
        clock=clock or clock_for(device),
        effort=effort_for(effort) if isinstance(effort, str) else effort,
        rng=random.Random(seed),
        threads=torch.get_num_threads(),
        on_progress=on_progress or (lambda progress: None),
    )
    with undisturbed(device):
        outcomes = _together(_that_fit(candidates, free_bytes(device)), bench)
        for candidate in _crowded_out(candidates, outcomes):
            outcomes |= _together([candidate], bench)
    return {candidate.key: outcomes[candidate.key] for candidate in candidates}


def _together(candidates: Sequence[Candidate], bench: _Bench) -> dict[str, Timing | Failure]:
    """Build all of them, measure what could be built in the same rounds, and free their memory."""
    calls, failed = _build_all(candidates, bench)
    outcomes = {**failed, **interleave(calls, bench.clock, bench.effort, bench.rng, bench.on_progress)}
    timed = len(calls)
    calls.clear()
    gc.collect()
    return {key: _result(outcome, bench, timed) for key, outcome in outcomes.items()}


def _build_all(candidates: Sequence[Candidate], bench: _Bench) -> tuple[dict[str, Call], dict[str, Failure]]:
    """The calls, which nothing else keeps alive, and the candidates that could not be built."""
    calls: dict[str, Call] = {}
    failed: dict[str, Failure] = {}
    for done, candidate in enumerate(candidates):
        bench.on_progress(Progress("building", done, len(candidates)))
        built = attempt(partial(_build, candidate, bench.device), "building")
        if isinstance(built, Failure):
            failed[candidate.key] = built
        else:
            calls[candidate.key] = built
    return calls, failed


def _build(candidate: Candidate, device: str) -> Call:
    free = free_bytes(device)
    if free is not None and candidate.least_bytes > free:
        raise MemoryError(f"at least {_gib(candidate.least_bytes)} needed, {_gib(free)} free on {device}")
    return candidate.build()


def _result(outcome: Samples | Failure, bench: _Bench, together: int) -> Timing | Failure:
    if isinstance(outcome, Samples):
        made = attempt(partial(_timing, outcome, bench, together), "measuring")
        if isinstance(made, Timing):
            return made
        outcome = made
    return replace(outcome, device=bench.name)


def _timing(samples: Samples, bench: _Bench, together: int) -> Timing:
    summary = summarise(samples.times_ms)
    return Timing(
        device=bench.name,
        regime=bench.clock.regime,
        median_ms=summary.median,
        low_ms=summary.low,
        high_ms=summary.high,
        first_call_ms=samples.warm.first_call_ms,
        rounds=summary.count,
        warmup=samples.warm.warmup,
        calls=samples.warm.calls,
        dropped=summary.dropped,
        steady=summary.steady,
        together=together,
        threads=bench.threads,
    )


def _that_fit(candidates: Sequence[Candidate], free: int | None) -> list[Candidate]:
    """The candidates, in order, whose known bytes fit side by side and leave room for what they make while running."""
    room = math.inf if free is None else free * _SHARE_FOR_WEIGHTS
    chosen = []
    for candidate in candidates:
        if candidate.least_bytes <= room:
            chosen.append(candidate)
            room -= candidate.least_bytes
    return chosen


def _crowded_out(candidates: Sequence[Candidate], outcomes: Mapping[str, Timing | Failure]) -> list[Candidate]:
    """Those that were not tried, or ran out of memory while others had some."""
    short = {key for key, outcome in outcomes.items() if isinstance(outcome, Failure) and outcome.out_of_memory}
    again = short if len(outcomes) > 1 else set()
    return [candidate for candidate in candidates if candidate.key in again or candidate.key not in outcomes]


def _refuse_repeated_keys(candidates: Sequence[Candidate]) -> None:
    repeated = [key for key, count in Counter(candidate.key for candidate in candidates).items() if count > 1]
    if repeated:
        raise UsageError(f"candidates to measure need keys of their own; more than one is called {', '.join(repeated)}")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
