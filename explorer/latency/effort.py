"""How much measuring `--effort` buys, as one table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from explorer.latency.words import known


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Processes, rounds and times of one comparison; milliseconds of one lane unless it says otherwise.

    `processes` fresh processes measure one after the other; one that says nothing for `hang_s` seconds is ended. Each
    goes on until any two lanes that are compared were both clean in `rounds` rounds and half the interval of their
    ratio is at most `precise` (a share), or `most_rounds` have passed, or, after `fewest_rounds`, once the samples of
    one lane have taken `budget_ms` on average.
    Warming up ends when the last three readings agree within `steady_within` after at least `warm_ms`, or at
    `warm_limit_ms`. A sample is as many calls as fill `sample_ms`.
    """

    rounds: int
    fewest_rounds: int
    most_rounds: int
    sample_ms: float
    warm_ms: float
    warm_limit_ms: float
    budget_ms: float
    precise: float = 0.02
    steady_within: float = 0.05
    processes: int = 1
    hang_s: float = 300.0

    def on(self, device: str) -> Effort:
        """As it is spent on a device: a sample of a CUDA queue need not be long, nothing else runs in it."""
        return replace(self, sample_ms=min(self.sample_ms, _CUDA_SAMPLE_MS)) if device.startswith("cuda") else self


_CUDA_SAMPLE_MS = 5.0

# 0.3 s: shorter warm-ups were 30 % off (https://github.com/triton-lang/triton/issues/2306).
# 10, 20, 30 rounds: the 95 % interval of a ratio was about 6, 3 and 2 % wide on a quiet shared 2-core machine. In loud
# hours ten were 9 % wide: hence `precise`.
# 1, 3, 5 processes: a process is the unit that varies (Kalibera & Jones 2013, https://kar.kent.ac.uk/33611).
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        "quick": Effort(
            rounds=10,
            fewest_rounds=5,
            most_rounds=40,
            sample_ms=20,
            warm_ms=300,
            warm_limit_ms=1_500,
            budget_ms=10_000,
            processes=1,
            hang_s=180,
        ),
        "default": Effort(
            rounds=20,
            fewest_rounds=8,
            most_rounds=60,
            sample_ms=20,
            warm_ms=300,
            warm_limit_ms=3_000,
            budget_ms=30_000,
            processes=3,
            hang_s=300,
        ),
        "publish": Effort(
            rounds=30,
            fewest_rounds=30,
            most_rounds=90,
            sample_ms=20,
            warm_ms=500,
            warm_limit_ms=9_000,
            budget_ms=120_000,
            processes=5,
            hang_s=600,
        ),
    }
)


def effort_for(word: str) -> Effort:
    """The effort of this name. Raises UsageError, listing the names, for another word."""
    return EFFORTS[known("effort", word, EFFORTS)]
