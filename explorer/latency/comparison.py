"""From the raw times of a comparison to its verdicts: run again over stored processes, it says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from explorer.latency.ranking import ranks
from explorer.latency.ratio import Ratio, paired_ratio
from explorer.latency.raw import Lane, Process, Shared, shared_rounds
from explorer.latency.verdict import Disturbed, Rule, Verdict, is_off, verdicts


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
    control = None if clone is None else ratio_of(processes, base, clone, rule)
    ratios = {lane: ratio_of(processes, base, lane, rule) for lane in others}
    disturbed = {lane: disturbed_of(processes, base, lane) for lane in others}
    return Comparison(base, verdicts(ratios, control, disturbed=disturbed, rule=rule), control)


def ranked(
    processes: Sequence[Process],
    lanes: Sequence[Lane],
    rule: Rule | None = None,
    *,
    controls: Iterable[Ratio | None] = (),
) -> dict[Lane, int]:
    """The rank of each lane, 1 for the fastest; those that cannot be told apart from their group's best share one.

    controls: for each baseline of the lanes the ratio of its clone to it. There are no ranks at all where one is off or
    could not be had (None): equals would get different ranks too.
    """
    if any(control is None or is_off(control, rule or Rule()) for control in controls):
        return {}
    return ranks(lanes, lambda base, other: ratio_of(processes, base, other, rule), rule)


def ratio_of(processes: Sequence[Process], base: Lane, other: Lane, rule: Rule | None = None) -> Ratio | None:
    """The paired ratio of two lanes over the processes that are not spoilt (see `Rule.fewest`).

    None where no clean round had both, and where more processes are spoilt than not: what is left of so busy a machine
    is no sample of it at rest.
    """
    shared = shared_rounds(processes, base, other)
    rule = rule or Rule()
    sound = [one.pairs for one in shared if one.pairs and not _is_spoilt(one, rule)]
    spoilt = sum(_is_spoilt(one, rule) for one in shared)
    return paired_ratio(sound) if sound and len(sound) >= spoilt else None


def disturbed_of(processes: Sequence[Process], base: Lane, other: Lane) -> Disturbed:
    """How many of the rounds that two lanes shared were clean and how many not, and the commonest reason."""
    shared = shared_rounds(processes, base, other)
    reasons = Counter(why for one in shared for why in one.disturbed)
    commonest = max(reasons, key=reasons.__getitem__) if reasons else None
    return Disturbed(reasons.total(), commonest, clean=sum(len(one.pairs) for one in shared))


def _is_spoilt(shared: Shared, rule: Rule) -> bool:
    clean, disturbed = len(shared.pairs), len(shared.disturbed)
    few = clean < rule.fewest and 0 < disturbed >= clean
    return few or disturbed > rule.most_disturbed * (clean + disturbed)
