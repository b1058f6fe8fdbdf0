"""From the raw times of a comparison to its verdicts: run again over stored processes, it says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.latency.ranking import ranks
from explorer.latency.ratio import Ratio, paired_ratio
from explorer.latency.raw import Lane, Process, clean_pairs
from explorer.latency.verdict import Disturbed, Rule, Verdict, verdicts


@dataclass(frozen=True)
class Comparison:
    """Each lane's verdict against the base, and the ratio of the base's clone to the base (None without one)."""

    base: Lane
    verdicts: dict[Lane, Verdict]
    control: Ratio | None


def compare(
    processes: Sequence[Process], base: Lane, others: Sequence[Lane], clone: Lane | None, rule: Rule | None = None
) -> Comparison:
    """The verdicts on `others` against `base`; `clone` is the lane of the base's clone, None where there was none."""
    control = None if clone is None else ratio_of(processes, base, clone)
    ratios = {lane: ratio_of(processes, base, lane) for lane in others}
    disturbed = {lane: disturbed_of(processes, base, lane) for lane in others}
    return Comparison(base, verdicts(ratios, control, disturbed=disturbed, rule=rule), control)


def ranked(processes: Sequence[Process], lanes: Sequence[Lane], rule: Rule | None = None) -> dict[Lane, int]:
    """The rank of each lane, 1 for the fastest; those that cannot be told apart from their group's best share one."""
    return ranks(lanes, lambda base, other: ratio_of(processes, base, other), rule)


def ratio_of(processes: Sequence[Process], base: Lane, other: Lane) -> Ratio | None:
    """The paired ratio of two lanes; None where there is no clean round in which both were timed."""
    pairs = clean_pairs(processes, base, other)
    return paired_ratio(pairs) if pairs else None


def disturbed_of(processes: Sequence[Process], base: Lane, other: Lane) -> Disturbed:
    """How many of the rounds that two lanes shared were disturbed, and the commonest reason."""
    shared = [process for process in processes if process.track(base) and process.track(other)]
    reasons = Counter(why for process in shared for why in process.disturbed if why is not None)
    return Disturbed(reasons.total(), max(reasons, key=reasons.__getitem__) if reasons else None)
