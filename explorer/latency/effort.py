"""How much measuring `--effort` buys, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from explorer.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Effort:
    """Rounds and times of one measurement; every time in milliseconds of one candidate.

    Warming up ends when the last three readings agree within `steady_within` after at least `warm_ms`, or at
    `warm_limit_ms`. A sample is as many calls as fill `sample_ms`. The rounds end early, but not before
    `fewest_rounds`, once the samples of one candidate have taken `budget_ms` on average.
    """

    rounds: int
    fewest_rounds: int
    sample_ms: float
    warm_ms: float
    warm_limit_ms: float
    budget_ms: float
    steady_within: float = 0.05


# 0.3 s: shorter warm-ups were 30 % off (https://github.com/triton-lang/triton/issues/2306).
# 10, 20, 30 rounds: the 95 % interval of a ratio was about 6, 3 and 2 % wide on a shared 2-core machine.
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        "quick": Effort(rounds=10, fewest_rounds=5, sample_ms=20, warm_ms=300, warm_limit_ms=1_500, budget_ms=10_000),
        "default": Effort(rounds=20, fewest_rounds=8, sample_ms=20, warm_ms=300, warm_limit_ms=3_000, budget_ms=30_000),
        "publish": Effort(
            rounds=30, fewest_rounds=30, sample_ms=20, warm_ms=500, warm_limit_ms=9_000, budget_ms=120_000
        ),
    }
)


def effort_for(word: str) -> Effort:
    """The effort of this name. Raises UsageError, listing the names, for another word."""
    if word not in EFFORTS:
        guess = did_you_mean(word, EFFORTS)
        more = f"; {guess}" if guess else ""
        raise UsageError(f"effort {word!r} is unknown; it is one of: {', '.join(EFFORTS)}{more}")
    return EFFORTS[word]
