"""The two ends of a measurement: a timing, or the reason why there is none."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Any

from explorer.errors import ExplorerError, is_out_of_memory


@dataclass(frozen=True)
class Timing:
    """How long one call takes: median, 10th and 90th percentile over `rounds` samples, in milliseconds."""

    device: str
    regime: str
    """Whose speed this is: `device`, `host` or `end-to-end` (explorer/latency/clock.py)."""
    median_ms: float
    low_ms: float
    high_ms: float
    first_call_ms: float
    """The very first call, with whatever it compiles or allocates; in no other number."""
    rounds: int
    warmup: int
    """Calls before the first sample, the first call included."""
    calls: int
    """Calls in one sample; a sample is their mean."""
    dropped: int
    """Samples that were no valid reading and count in no number."""
    steady: bool
    """Whether the first and the second half of the rounds agree within 10 %."""
    together: int
    """Candidates in the same rounds, this one included: only those met the same drift."""
    threads: int
    source: str = "measured"
    impl: str = "eager"
    verdict: str | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """An entry of `latencies`."""
        return _entry(self)


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no timing."""

    reason: str
    device: str | None = None
    out_of_memory: bool = False
    details: str = ""
    """The traceback as text: a kept exception would keep the tensors of its frames."""

    def to_dict(self) -> dict[str, Any]:
        """An entry of `latencies` whose numbers are null."""
        return _entry(self)


def failure(error: Exception, doing: str, device: str | None = None) -> Failure:
    """The failure that an exception stands for; `doing` says during what. Our own errors speak for themselves."""
    short = is_out_of_memory(error)
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ExplorerError):
        return Failure(str(error), device, short, details)
    what = "out of memory" if short else type(error).__name__
    first_line = next(iter(str(error).splitlines()), "")
    return Failure(f"{what} while {doing}" + (f": {first_line}" if first_line else ""), device, short, details)


_KEYS = (
    *("source", "device", "impl", "regime", "median_ms", "low_ms", "high_ms", "first_call_ms", "rounds"),
    *("verdict", "reason", "warmup", "calls", "dropped", "steady", "together", "threads"),
)


def _entry(outcome: Timing | Failure) -> dict[str, Any]:
    known = {"source": "measured", "impl": "eager", **asdict(outcome)}
    return {key: known.get(key) for key in _KEYS}
