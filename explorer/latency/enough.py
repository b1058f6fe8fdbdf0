"""When the rounds of a comparison are enough: by how many are clean, by how much they scatter, by what they took."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from explorer.latency.effort import Effort
from explorer.latency.ratio import FEWEST_ROUNDS
from explorer.latency.raw import Lane
from explorer.latency.statistics import half_interval


@dataclass
class Taken:
    """The samples of one lane so far: milliseconds a step, what disturbed each, and milliseconds of all together."""

    times_ms: list[float | None] = field(default_factory=list)
    disturbed: list[str | None] = field(default_factory=list)
    spent_ms: float = 0.0

    def add(self, time_ms: float | None, disturbed: str | None, spent_ms: float) -> None:
        """One sample, and what it took as a whole."""
        self.times_ms.append(time_ms)
        self.disturbed.append(disturbed)
        self.spent_ms += spent_ms


def fewest_clean(taken: Mapping[Lane, Taken], baselines: Mapping[str, str | None]) -> int:
    """The clean rounds of those two compared lanes that have the fewest.

    A round counts for no ratio if either sample was disturbed; the other lanes do not matter to it.
    """
    return min(len(_clean(taken, pair)) for pair in _compared(taken, baselines))


def is_enough(taken: Mapping[Lane, Taken], baselines: Mapping[str, str | None], effort: Effort) -> bool:
    """Whether any two compared lanes have clean rounds enough and a ratio that is known well enough, or the rounds or
    the budget are used up. Rounds are whole: all lanes have as many.

    How many follow depends on how ratios scatter, not on what they are (Chow & Robbins 1965, "On the asymptotic theory
    of fixed-width sequential confidence intervals for the mean"); what that costs in errors stands at `verdicts`.
    """
    done = len(next(iter(taken.values())).times_ms)
    if done >= effort.most_rounds:
        return True
    if done >= effort.fewest_rounds and fmean(one.spent_ms for one in taken.values()) >= effort.budget_ms:
        return True
    if fewest_clean(taken, baselines) < effort.rounds:
        return False
    return all(_is_known(taken, pair, effort) for pair in _compared(taken, baselines))


def _compared(lanes: Collection[Lane], baselines: Mapping[str, str | None]) -> Iterator[tuple[Lane, Lane]]:
    """Each lane with those that a ratio of it is taken to, its other implementations and its baseline; and itself."""
    impls = {lane.impl for lane in lanes}
    for lane in lanes:
        base = baselines.get(lane.candidate) or lane.candidate
        others = (*(replace(lane, impl=impl) for impl in impls), replace(lane, candidate=base))
        yield from ((lane, other) for other in others if other in lanes)


def _is_known(taken: Mapping[Lane, Taken], pair: tuple[Lane, Lane], effort: Effort) -> bool:
    """Whether the median ratio of these two has an interval, and that is narrow enough. Nothing more is awaited of a
    clock that had no valid reading for them."""
    times = _clean(taken, pair)
    logs = [math.log(other / one) for one, other in times if one is not None and other is not None]
    fewest = min(FEWEST_ROUNDS, effort.rounds)
    return not logs or (len(logs) >= fewest and half_interval(logs) <= math.log1p(effort.precise))


def _clean(taken: Mapping[Lane, Taken], pair: tuple[Lane, Lane]) -> list[tuple[float | None, float | None]]:
    """The times of both in the rounds in which neither was disturbed."""
    one, other = (taken[lane] for lane in pair)
    rounds = zip(one.times_ms, other.times_ms, one.disturbed, other.disturbed, strict=True)
    return [(first, second) for first, second, why, other_why in rounds if why is None and other_why is None]
