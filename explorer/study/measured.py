"""What was measured, as entries of `latencies`: times, ratio to the baseline, verdict, and what ran."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.comparison import compare, ranked, ratio_of
from explorer.latency.facts import EAGER
from explorer.latency.ratio import Ratio
from explorer.latency.raw import Failed, Lane, Process, clean_times
from explorer.latency.recipe import CLONE
from explorer.latency.temperature import COLD
from explorer.latency.timing import Timing, timing
from explorer.latency.verdict import Verdict

Entry = dict[str, Any]

HOST_BOUND = 1.2
"""Eager time over device time above which launching, not computing, is what takes the time."""


@dataclass(frozen=True)
class Measured:
    """All that the processes of one comparison found.

    baselines: for each candidate the one that it is compared with; each of those was measured twice (see `CLONE`).
    """

    found: Sequence[Process | Failed]
    baselines: Mapping[str, str | None]

    @cached_property
    def processes(self) -> list[Process]:
        return [one for one in self.found if isinstance(one, Process)]

    def entries(self, candidate: str) -> list[Entry]:
        """The entries of a candidate, an entry for each implementation and regime; of what failed, the reasons."""
        timed = [self._entry(lane) for lane in self._lanes if lane.candidate == candidate]
        _flag_host_bound(timed)
        return [*timed, *self._failures(candidate)]

    def reason(self, candidate: str) -> str | None:
        """Why nothing was measured of a candidate, in all processes or in one; None where all of them have it."""
        lost = [one for one in self.failed if one.candidate == candidate and one.impl is None]
        if not lost and any(lane.candidate == candidate for lane in self._lanes):
            return None
        reasons = dict.fromkeys(one.reason for one in lost or self.failed if one.candidate == candidate)
        return "; ".join(reasons) or "it was not measured"

    def failure(self, candidate: str, impl: str | None, regime: str | None) -> str | None:
        """What is said of a candidate that has no times in an implementation and regime (None: in any)."""
        own = [one for one in self.failed if one.candidate == candidate]
        if impl is not None:
            own = [one for one in own if one.impl in (None, impl)]
        if regime is not None:
            own = [one for one in own if one.regime in (None, regime)]
        return "; ".join(dict.fromkeys(one.reason for one in own)) or None

    def to_dict(self) -> dict[str, Any]:
        """All that a verdict follows from, as JSON."""
        return {
            "baselines": dict(self.baselines),
            "control_ratios": self._control_ratios(),
            "processes": [process.to_dict() for process in self.processes],
            "failed": [one.to_dict() for one in self.found if isinstance(one, Failed)],
        }

    def _control_ratios(self) -> list[dict[str, Any]]:
        """How the baseline that was measured twice compares with itself, in each implementation and regime."""
        found = []
        for lane in self._lanes:
            ratio = self._control(lane)
            if ratio is not None:
                about = {"baseline_id": lane.candidate, "impl": lane.impl, "regime": lane.regime}
                found.append(about | _shown(ratio))
        return found

    @cached_property
    def _lanes(self) -> list[Lane]:
        """What has times, in order of appearance."""
        return list(dict.fromkeys(track.lane for process in self.processes for track in process.tracks))

    @cached_property
    def failed(self) -> list[Failed]:
        """What has no times, of all processes, and what has none that is valid."""
        alone = [one for one in self.found if isinstance(one, Failed)]
        within = (one for process in self.processes for one in process.failed)
        return [*alone, *within, *(one for one in self._timed.values() if isinstance(one, Failed))]

    @cached_property
    def timings(self) -> dict[Lane, Timing]:
        """What has valid times."""
        return {lane: times for lane, times in self._timed.items() if isinstance(times, Timing)}

    @cached_property
    def _timed(self) -> dict[Lane, Timing | Failed]:
        """The times of each lane, or why none of them is valid."""
        found: dict[Lane, Timing | Failed] = {}
        for lane in self._lanes:
            try:
                found[lane] = timing(self.processes, lane)
            except MeasureError as error:
                found[lane] = Failed(lane.candidate, str(error), lane.impl, lane.regime)
        return found

    @cached_property
    def _verdicts(self) -> dict[Lane, Verdict]:
        found: dict[Lane, Verdict] = {}
        for base in self._lanes:
            others = [lane for lane in self._lanes if _alike(lane, base) and self._base_of(lane) == base.candidate]
            if others:
                found |= compare(self.processes, base, others, self._clone(base)).verdicts
        return found

    def _clone(self, base: Lane) -> Lane | None:
        """The baseline measured once more; None where it was not."""
        clone = Lane(f"{base.candidate}{CLONE}", base.impl, base.regime)
        return clone if clone in self._lanes else None

    def _control(self, base: Lane) -> Ratio | None:
        """How the baseline compares with itself, measured once more."""
        clone = self._clone(base)
        return None if clone is None else ratio_of(self.processes, base, clone)

    @cached_property
    def _ranks(self) -> dict[Lane, int]:
        """Among the rows that share an implementation and a regime, of those whose times may be held against others'.

        None are ranked where a baseline differs from itself, or cannot be held against itself.
        """
        found: dict[Lane, int] = {}
        for impl, regime in dict.fromkeys((lane.impl, lane.regime) for lane in self._lanes):
            rows = [lane for lane in map(partial(Lane, impl=impl, regime=regime), self.baselines) if self._counts(lane)]
            bases = dict.fromkeys(base for base in self.baselines.values() if base is not None)
            controls = [self._control(Lane(base, impl, regime)) for base in bases]
            found |= ranked(self.processes, rows, controls=controls)
        return found

    def _counts(self, lane: Lane) -> bool:
        """Whether a row takes part in the ranking: it was timed, was left alone, and computes what it should."""
        told = self._verdicts.get(lane)
        contended = told is not None and told.word == "contended"
        return bool(clean_times(self.processes, lane)) and not contended and self._closed(lane) is None

    def _base_of(self, lane: Lane) -> str | None:
        return self.baselines.get(lane.candidate)

    def _entry(self, lane: Lane) -> Entry:
        facts, times = self._facts(lane), self._timed[lane]
        if isinstance(times, Failed):
            return {**untimed(times.reason, lane.impl, lane.regime), **facts}
        return {
            **times.to_dict(),
            **self._verdict(lane),
            "against_eager": self._against_eager(lane),
            "rank": self._ranks.get(lane),
            "host_bound": None,
            **facts,
        }

    def _verdict(self, lane: Lane) -> dict[str, Any]:
        """The verdict against the baseline; where the two do not compute the same, why there is none."""
        told, base = self._verdicts.get(lane), self._base_of(lane)
        if told is None or base is None:
            return {"verdict": None, "reason": None, "ratio": None}
        closed = self._closed(lane)
        if closed is None and self._control(_beside(lane, base)) is None and told.word != "contended":
            closed = self.reason(f"{base}{CLONE}") or "too few clean rounds"
            closed = f"the baseline cannot be held against itself: {closed}"
        if closed is not None:
            return {"verdict": "unclear", "reason": closed, "ratio": None}
        return {"verdict": told.word, "reason": told.reason, "ratio": told.ratio and self._ratio(told.ratio, lane)}

    def _closed(self, lane: Lane) -> str | None:
        """Why the time of a row says nothing beside others'.

        It, or its baseline, does not compute what it should, or one found its weights in the cache and one did not.
        """
        base, own = self._base_of(lane), self._facts(lane)
        gates = [_closed(own, "gate"), _closed(own, "parity")]
        if base is not None:
            beside = _beside(lane, base)
            gates += [_closed(self._facts(beside), "parity"), self._unlike(lane, beside)]
        return next((reason for reason in gates if reason is not None), None)

    def _unlike(self, lane: Lane, base: Lane) -> str | None:
        """That weights came from elsewhere than the baseline's: a small block has too many copies and stays warm."""
        own, of = (self.timings[one].cache if one in self.timings else None for one in (lane, base))
        if own is None or of is None or own == of:
            return None
        return f"its cache was {own!r}, that of the baseline {of!r}: add --cache warm to time both alike"

    def _against_eager(self, lane: Lane) -> dict[str, Any] | None:
        """The ratio to the same candidate in eager mode, where both compute the same."""
        eager = Lane(lane.candidate, EAGER, lane.regime)
        if lane == eager or eager not in self._lanes or _closed(self._facts(lane), "parity"):
            return None
        ratio = ratio_of(self.processes, eager, lane)
        return None if ratio is None else _shown(ratio)

    def _ratio(self, ratio: Ratio, lane: Lane) -> dict[str, Any]:
        return {**_shown(ratio), "baseline_id": self._base_of(lane)}

    def _facts(self, lane: Lane) -> dict[str, Any]:
        """What was seen besides times, in the first process that saw it."""
        found: dict[str, Any] = {}
        for process in self.processes:
            for name, value in process.facts.get(lane.candidate, {}).get(lane.impl, {}).items():
                found.setdefault(name, value)
        return found

    def _failures(self, candidate: str) -> Iterator[Entry]:
        """One entry for each implementation or regime that failed in every process, and for a candidate that did."""
        timed = {lane for lane in self._lanes if lane.candidate == candidate}
        told: set[tuple[str | None, str | None]] = set()
        for one in self.failed:
            lanes = [lane for lane in timed if one.impl in (None, lane.impl) and one.regime in (None, lane.regime)]
            if one.candidate == candidate and not lanes and (one.impl, one.regime) not in told:
                told.add((one.impl, one.regime))
                yield untimed(one.reason, one.impl, one.regime)


def untimed(reason: str, impl: str | None = None, regime: str | None = None, device: str | None = None) -> Entry:
    """An entry without times, and why there are none."""
    nothing = dict.fromkeys(("median_ms", "low_ms", "high_ms", "first_call_ms", "rounds", "verdict", "ratio", "rank"))
    return {"source": "measured", "device": device, "impl": impl, "regime": regime, **nothing, "reason": reason}


def _closed(facts: Mapping[str, Any], gate: str) -> str | None:
    """Why a gate among the facts lets no comparison through; None where it does, or where there is no such gate."""
    if gate not in facts:
        return None
    found = facts[gate]
    if found is None:  # nobody knows whether they agree
        return str(facts.get(f"{gate}_note") or "not compared")
    return None if found["ok"] else str(found["reason"])


def _beside(lane: Lane, candidate: str) -> Lane:
    """The same implementation and regime of another candidate."""
    return replace(lane, candidate=candidate)


def _shown(ratio: Ratio) -> dict[str, Any]:
    names = ("value", "low", "high", "p10", "rounds", "processes", "per_process")
    return {name: getattr(ratio, name) for name in names}


def _alike(lane: Lane, other: Lane) -> bool:
    return (lane.impl, lane.regime) == (other.impl, other.regime)


def _flag_host_bound(entries: Iterable[Entry]) -> None:
    """On a device with a queue: whether calls follow each other more slowly than the device could run them.

    Not told of a cold cache: while the device overwrites it, the host launches ahead, and nothing waits for launching.
    """
    by_lane = {(entry["impl"], entry["regime"]): entry for entry in entries}
    for (impl, regime), entry in by_lane.items():
        device = by_lane.get((impl, "device"))
        told = regime == "throughput" and entry.get("cache") != COLD
        if told and device and entry["median_ms"] and device["median_ms"]:
            entry["host_bound"] = entry["median_ms"] / device["median_ms"] > HOST_BOUND
