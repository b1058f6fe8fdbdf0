"""What may be said about two candidates: a word and the reason for it. Pure functions over ratios.

    faster, slower   the whole interval of the ratio lies beyond the margin, on top of what the baseline is off itself
    tie              the whole interval lies within the margin
    small            they differ, but the difference may be within the margin
    unclear          the data do not carry any of these
    contended        something else used the device in so many rounds that too few are left

The margin is the same factor both ways, so that two candidates that change places change the word and no more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from explorer.latency.ratio import Ratio

K = TypeVar("K", bound=Hashable)

ONE_PROCESS = "one process: spread between processes unknown"


@dataclass(frozen=True)
class Rule:
    """When a word is said.

    margin: what is too small to matter, as a share. cross_check: how far the ratio of the 10th percentiles may be from
    the ratio, as a share. fewest: a process with fewer clean rounds than this, and no more of them than disturbed ones,
    is spoilt and counts for nothing; so is one of which more than `most_disturbed` (a share) were. Where most processes
    are, it is `contended`. alpha: how often one of all the faster and slower of a comparison may be wrong.
    """

    margin: float = 0.03
    cross_check: float = 0.05
    fewest: int = 10
    most_disturbed: float = 2 / 3
    alpha: float = 0.05


@dataclass(frozen=True)
class Disturbed:
    """How many rounds of a candidate and the baseline were disturbed, most often by what, and how many were clean."""

    rounds: int
    why: str | None = None
    clean: int = 0


@dataclass(frozen=True)
class Verdict:
    """One of the six words, why in one sentence, and the ratio that it speaks of (None where there is none)."""

    word: str
    reason: str
    ratio: Ratio | None = None


def verdicts(
    ratios: Mapping[K, Ratio | None],
    control: Ratio | None,
    *,
    disturbed: Mapping[K, Disturbed] | None = None,
    rule: Rule | None = None,
) -> dict[K, Verdict]:
    """A verdict on each candidate's ratio to the one baseline that they share; None is a candidate without a ratio.

    control: the ratio of the baseline's clone to the baseline. Where it is off (see `is_off`), something makes as much
    difference between lanes that compute the same: the margin of `faster` and `slower` then holds on top of that, and
    no other word is said. `small` is a difference larger than the control's.

    Given the lanes' own differences, `faster` and `slower` hold together at `rule.alpha` (Holm 1979, "A simple
    sequentially rejective multiple test procedure"). What a lane is off in one process no interval of it knows.

    Simulated in the rounds of `interleave` at quick effort, 2,000 runs each: equal candidates were called faster or
    slower in none with 1 to 4 % of jitter in each sample, with drift, or with bursts, whether or not the guard sees
    them, and in 0.05 % with 6 % of jitter; those 3 % slower, which is the margin, in 2 to 4 %. A candidate 10 % slower
    was called slower in 99.6 % and more with 1 to 4 % of jitter, in 93 to 94 % with 6 % or with bursts that are not
    seen, in 83 % with bursts that are (the rest contended). Where every lane was off by 1, 2 or 4 % for all of the one
    process, equal candidates were called faster or slower in 0.5, 7 and 18 %, hence more than one process; a margin on
    top of the farther end of the control's interval changes nothing of that.
    """
    spoilt = disturbed or {}
    found = {key: ratio for key, ratio in ratios.items() if ratio is not None}
    comparison = _Comparison(control, rule or Rule(), len(found))
    certain = frozenset(_holm(found, comparison.wide))
    return {
        key: comparison.verdict(ratio, spoilt.get(key, Disturbed(0)), certain=key in certain)
        for key, ratio in ratios.items()
    }


@dataclass(frozen=True)
class _Comparison:
    """What all verdicts of one comparison share."""

    control: Ratio | None
    rule: Rule
    compared: int

    @property
    def off(self) -> Ratio | None:
        """The control, where the baseline differs from itself."""
        return self.control if self.control is not None and is_off(self.control, self.rule) else None

    @property
    def wide(self) -> Rule:
        """The rule for `faster` and `slower`: where the baseline is off, its margin holds on top of that."""
        return self.rule if self.off is None else replace(self.rule, margin=self.seen * (1 + self.rule.margin) - 1)

    def verdict(self, ratio: Ratio | None, disturbed: Disturbed, *, certain: bool) -> Verdict:
        if ratio is None and disturbed.rounds:
            return Verdict("contended", _contention(disturbed))
        if ratio is None:
            return Verdict("unclear", "there is no round in which both were timed")
        doubt = _doubt(ratio, self.rule)
        word, reason = ("unclear", doubt) if doubt else self.by_interval(ratio, certain)
        return Verdict(word, f"{reason}; {ONE_PROCESS}" if ratio.processes == 1 else reason, ratio)

    def by_interval(self, ratio: Ratio, certain: bool) -> tuple[str, str]:
        """The word and the reason that the interval gives."""
        assert ratio.low is not None
        assert ratio.high is not None
        shown, margin, limit = _shown(ratio), f"{100 * self.rule.margin:g} %", self.limit()
        beyond = _beyond(ratio, self.wide)
        if beyond and certain:
            return beyond, f"{shown}, all of it beyond {limit}"
        if beyond:
            return "unclear", f"{shown}: beyond {limit} by itself, but not as one of {self.compared} candidates"
        if self.off is not None:
            return "unclear", f"{shown}: the baseline differed from itself by {_shown(self.off)}"
        if 1 / (1 + self.rule.margin) <= ratio.low and ratio.high <= 1 + self.rule.margin:
            return "tie", f"{shown}, all of it within {margin}"
        if ratio.low > self.seen or ratio.high < 1 / self.seen:
            return "small", f"{shown}: a difference, but perhaps within {margin}"
        if ratio.low > 1 or ratio.high < 1:
            return "unclear", f"{shown}: perhaps no more than the {_percent(self.seen)} of the baseline against itself"
        return "unclear", f"{shown}: neither within {margin} nor beyond"

    def limit(self) -> str:
        """What `faster` and `slower` are beyond, in words."""
        margin = f"{100 * self.rule.margin:g} %"
        if self.off is None:
            return margin
        wide, off = 100 * self.wide.margin, 100 * (self.seen - 1)
        return f"{wide:.1f} % ({margin} beside {off:.1f} % in the baseline)"

    @property
    def seen(self) -> float:
        """How many times as long the baseline took as itself, or as short."""
        return 1.0 if self.control is None else max(self.control.value, 1 / self.control.value)


def _contention(disturbed: Disturbed) -> str:
    most = f", most often by {disturbed.why}" if disturbed.why else ""
    return f"too few clean rounds: {disturbed.clean}, beside {disturbed.rounds} disturbed ones{most}"


def _doubt(ratio: Ratio, rule: Rule) -> str | None:
    """Why the interval is not to be believed."""
    if ratio.low is None or ratio.high is None:
        return f"too few clean rounds for an interval: {ratio.rounds}"
    if abs(math.log(ratio.value / ratio.p10)) > math.log1p(rule.cross_check):
        return f"{_shown(ratio)} by medians, {_percent(ratio.p10)} by 10th percentiles"
    return None


def is_off(control: Ratio, rule: Rule) -> bool:
    """Whether the baseline differs from itself by more than the margin, and not by chance: `control` is that ratio.

    By the estimate alone noise would do, in one of twenty comparisons of ten rounds with 3 % of jitter (simulated).
    """
    beyond = abs(math.log(control.value)) > math.log1p(rule.margin)
    return beyond and control.low is not None and control.high is not None and not control.low <= 1 <= control.high


def _beyond(ratio: Ratio, rule: Rule) -> str | None:
    """`faster` or `slower` where the interval lies wholly beyond the margin."""
    if ratio.low is not None and ratio.low > 1 + rule.margin:
        return "slower"
    if ratio.high is not None and ratio.high < 1 / (1 + rule.margin):
        return "faster"
    return None


def _holm(ratios: Mapping[K, Ratio], rule: Rule) -> Iterator[K]:
    """The candidates that are beyond the margin even as one of so many: the i-th smallest alpha (from 0) is within
    alpha / (candidates - i), and so are all before it."""
    alphas = {key: _alpha_beyond(ratio, rule) for key, ratio in ratios.items()}
    for done, key in enumerate(sorted(alphas, key=alphas.__getitem__)):
        if alphas[key] > rule.alpha / (len(alphas) - done):
            return
        yield key


def _alpha_beyond(ratio: Ratio, rule: Rule) -> float:
    """The smallest error probability at which it could be called faster or slower; 1 where it could not."""
    if abs(math.log(ratio.value)) <= math.log1p(rule.margin):
        return 1.0
    return ratio.least_alpha(1 + rule.margin if ratio.value > 1 else 1 / (1 + rule.margin))


def _shown(ratio: Ratio) -> str:
    """`+10.2 % [+7.9 %, +12.4 %]`, or the estimate alone where there is no interval."""
    if ratio.low is None or ratio.high is None:
        return _percent(ratio.value)
    return f"{_percent(ratio.value)} [{_percent(ratio.low)}, {_percent(ratio.high)}]"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
