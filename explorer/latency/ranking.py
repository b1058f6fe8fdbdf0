"""Ranks that several may share: who is fastest is said only as far as the intervals say it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from explorer.latency.ratio import Ratio
from explorer.latency.verdict import Rule, verdicts

K = TypeVar("K", bound=Hashable)

RatioOf = Callable[[K, K], Ratio | None]
"""The ratio of the second one's time to the first one's, None where they were never timed in the same rounds."""


def ranks(candidates: Sequence[K], ratio_of: RatioOf[K], rule: Rule | None = None) -> dict[K, int]:
    """The rank of each candidate, 1 for the fastest group.

    A group is the best of those still without a rank, and all that beside it no verdict calls slower: for whatever
    reason the data do not carry that, a rank is shared. The point estimate only chooses whom the others are held
    against. The next group's rank counts those before it, as in sport: 1, 1, 1, 4.
    """
    left, found = list(candidates), dict.fromkeys(candidates, 0)
    while left:
        best = _best(left, ratio_of)
        told = verdicts({one: ratio_of(best, one) for one in left if one != best}, None, rule=rule)
        group = [one for one in left if one == best or told[one].word != "slower"]
        found.update(dict.fromkeys(group, 1 + len(candidates) - len(left)))
        left = [one for one in left if one not in group]
    return found


def _best(candidates: Sequence[K], ratio_of: RatioOf[K]) -> K:
    """The one with the lowest ratio to the first of them; the first where none is lower."""

    def estimate(one: K) -> float:
        ratio = None if one == candidates[0] else ratio_of(candidates[0], one)
        return 1.0 if ratio is None else ratio.value

    return min(candidates, key=estimate)
