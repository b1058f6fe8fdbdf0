"""Measure candidates side by side on one device, in this process."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from explorer.errors import UsageError
from explorer.latency.arms import Arm, Candidate, Surroundings, arms_of
from explorer.latency.device import environment
from explorer.latency.effort import Effort, effort_for
from explorer.latency.facts import facts_of, not_looked_at
from explorer.latency.failure import Failure, attempt
from explorer.latency.guard import Guard, guard_for
from explorer.latency.implementation import checked
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.memory import free_bytes
from explorer.latency.protocol import OnProgress, Progress, Rounds, Warm, interleave, release, warm_up
from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.latency.regimes import Regime, regime_notes, regimes_for
from explorer.latency.temperature import COLD, MODES, Room, flusher
from explorer.latency.undisturbed import undisturbed
from explorer.latency.watching.clocks import clocks
from explorer.latency.words import known

__all__ = ["Candidate", "measure"]

OnTimed = Callable[[Process], object]
OnFacts = Callable[[str, Mapping[str, Mapping[str, Any]]], object]
"""Gets the key of a candidate, and by implementation what is known of it besides times."""

_ENDED = "not looked for: looking for facts of it ended an earlier process"


def measure(
    candidates: Sequence[Candidate],
    *,
    device: str,
    effort: str | Effort = "default",
    seed: int = 0,
    impls: Sequence[str] = ("eager",),
    cache: str = "auto",
    last_cache: int | None = None,
    regimes: Sequence[Regime] | None = None,
    without: Collection[Lane] = (),
    uninspected: Collection[str] = (),
    baselines: Mapping[str, str | None] | None = None,
    guard: Guard | None = None,
    on_progress: OnProgress | None = None,
    on_timed: OnTimed | None = None,
    on_facts: OnFacts | None = None,
) -> Process:
    """The times of every candidate in every implementation and regime, all in the same interleaved rounds.

    A candidate that fails costs only itself: the reason stands in `failed`. seed: draws the order of building and of
    the rounds. last_cache: bytes of the last-level cache, None for what the device tells. without: lanes to leave out.
    uninspected: candidates whose facts are not looked for, which then say so. baselines: by candidate the one that it
    is compared with (see `enough`). Of the effort, `processes` and `hang_s` do not apply here. Torch's global state is
    left as it was. on_timed: gets the record as soon as all is timed, without facts: looking for those builds each
    candidate once more, which may end this process. on_facts: gets what is found of each candidate.

    Raises UsageError for an unknown effort, implementation or cache mode, and for two candidates with one key;
    DeviceLost where a candidate leaves this process without its device.
    """
    _refuse_repeated_keys(candidates)
    ways = tuple(regimes or regimes_for(device))
    room = Room(last_cache_bytes(device) if last_cache is None else last_cache, free_bytes(device))
    bench = _Bench(
        at=Surroundings(device, room, known("cache mode", cache, MODES), checked(impls), ways[0].clock),
        effort=(effort_for(effort) if isinstance(effort, str) else effort).on(device),
        rng=random.Random(seed),
        regimes=ways,
        without=frozenset(without),
        uninspected=frozenset(uninspected),
        baselines=baselines or {},
        guard=guard or guard_for(device),
        on_progress=on_progress or (lambda progress: None),
        on_timed=on_timed or (lambda record: None),
        on_facts=on_facts or (lambda candidate, facts: None),
    )
    with undisturbed(device):
        return _process(candidates, bench, seed)


@dataclass(frozen=True)
class _Bench:
    """Where, with what and how long candidates are measured."""

    at: Surroundings
    effort: Effort
    rng: random.Random
    regimes: tuple[Regime, ...]
    without: frozenset[Lane]
    uninspected: frozenset[str]
    baselines: Mapping[str, str | None]
    guard: Guard
    on_progress: OnProgress
    on_timed: OnTimed
    on_facts: OnFacts

    @cached_property
    def flush(self) -> Callable[[], object]:
        """What empties the caches of the device; its buffer is made when the first candidate wants it."""
        assert self.at.room.last_cache is not None, "without its size no candidate is timed cold"
        return flusher(self.at.device, self.at.room.last_cache)


def _process(candidates: Sequence[Candidate], bench: _Bench, seed: int) -> Process:
    """Build, warm up, measure, look at what ran; in the end nothing keeps the memory of a candidate."""
    surroundings = environment(bench.at.device)  # now: a candidate may change the threads behind our back
    lanes, failed = _warm_lanes(candidates, bench)
    before = clocks(bench.at.device)
    rounds = interleave(lanes, bench.effort, bench.rng, bench.guard, bench.on_progress, bench.baselines)
    surroundings["clocks"] = {"before": before, "after": clocks(bench.at.device)}
    failed += [why.of(lane.candidate, lane.impl, lane.regime) for lane, why in rounds.failed.items()]
    found = {lane: lanes[lane] for lane in _in_order(lanes, candidates, bench)}
    tracks = tuple(_track(lane, warm, rounds, bench) for lane, warm in found.items())
    record = Process(seed, tracks, rounds.rounds, bench.guard.name, surroundings, failed=tuple(failed))
    bench.on_timed(record)
    facts = _facts(found, bench)
    found.clear()
    for lane in rounds.times_ms:
        release(lanes, lane)
    return replace(record, facts=facts)


def _warm_lanes(candidates: Sequence[Candidate], bench: _Bench) -> tuple[dict[Lane, Warm], list[Failed]]:
    """Every lane that could be built and warmed up, and why others could not.

    Built in random order: where memory lies differs from process to process, and is not to differ by candidate.
    """
    arms, failed = _arms(bench.rng.sample(candidates, len(candidates)), bench)
    lanes: dict[Lane, Warm] = {}
    total = len(arms) * len(bench.regimes)
    while arms:
        arm = arms.popleft()
        for place, regime in enumerate(bench.regimes):
            lane = Lane(arm.candidate.key, arm.impl, regime.name)
            if lane in bench.without:
                continue
            done = total - (len(arms) + 1) * len(bench.regimes) + place
            bench.on_progress(Progress("warming up", done, total, lane.candidate, lane.impl, lane.regime))
            warm = attempt(partial(_warm_up, arm, regime, bench), "warming up")
            if isinstance(warm, Failure):
                failed.append(warm.of(lane.candidate, lane.impl, lane.regime))
                release(lanes, lane)
            else:
                lanes[lane] = warm
    return lanes, failed


def _arms(candidates: Sequence[Candidate], bench: _Bench) -> tuple[deque[Arm], list[Failed]]:
    arms: deque[Arm] = deque()
    failed: list[Failed] = []
    for done, candidate in enumerate(candidates):
        bench.on_progress(Progress("building", done, len(candidates), candidate.key))
        for found in arms_of(candidate, bench.at):
            if isinstance(found, Arm):
                arms.append(found)
            else:
                failed.append(found)
    return arms, failed


def _warm_up(arm: Arm, regime: Regime, bench: _Bench) -> Warm:
    timed = regime.timed(arm.calls, bench.flush if arm.temperature.cache == COLD else None)
    compiles = int if arm.implemented is None else arm.implemented.compiles
    return warm_up(replace(timed, compiles=compiles, owner=arm), bench.effort)


def _track(lane: Lane, warm: Warm, rounds: Rounds, bench: _Bench) -> Track:
    arm: Arm = warm.timed.owner
    each, warmth = warm.timed.each, arm.temperature
    return Track(
        lane=lane,
        times_ms=rounds.times_ms[lane],
        first_call_ms=arm.first_call_ms,
        warmup=1 + warm.warmup * each,
        calls=warm.calls * each,
        copies=warmth.copies,
        cache=warmth.cache,
        notes=(*warmth.notes, *regime_notes(bench.at.device, lane.regime, warmth.cache)),
        disturbed=rounds.disturbed[lane],
    )


def _facts(lanes: Mapping[Lane, Warm], bench: _Bench) -> dict[str, dict[str, Any]]:
    """By candidate and implementation, what is known of it besides times; looked at last, when no time is read."""
    arms: dict[str, dict[str, Arm]] = {}
    for lane, warm in lanes.items():
        arms.setdefault(lane.candidate, {})[lane.impl] = warm.timed.owner
    facts = {}
    for done, (candidate, impls) in enumerate(arms.items()):
        bench.on_progress(Progress("inspecting", done, len(arms), candidate))
        if candidate in bench.uninspected:
            facts[candidate] = {impl: not_looked_at(impl, _ENDED) for impl in impls}
        else:
            facts[candidate] = facts_of(impls, bench.at.device)
        bench.on_facts(candidate, facts[candidate])
    return facts


def _in_order(lanes: Iterable[Lane], candidates: Sequence[Candidate], bench: _Bench) -> list[Lane]:
    """As candidates, implementations and regimes were given."""
    keys = [candidate.key for candidate in candidates]
    names = [regime.name for regime in bench.regimes]
    return sorted(
        lanes, key=lambda lane: (keys.index(lane.candidate), bench.at.impls.index(lane.impl), names.index(lane.regime))
    )


def _refuse_repeated_keys(candidates: Sequence[Candidate]) -> None:
    repeated = [key for key, count in Counter(candidate.key for candidate in candidates).items() if count > 1]
    if repeated:
        raise UsageError(f"candidates to measure need keys of their own; more than one is called {', '.join(repeated)}")
