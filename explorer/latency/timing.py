"""The times of one lane over all its processes, in numbers for a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.raw import Lane, Process, Track, clean_times
from explorer.latency.statistics import is_steady, summarise


@dataclass(frozen=True)
class Timing:
    """How long one call takes, in milliseconds: median, 10th and 90th percentile over the clean samples.

    first_call_ms: of the first process, the very first call with whatever it compiles or allocates; in no other number.
    rounds: valid times that count. dropped: samples without a valid reading, or in which it was compiled again. clean:
    share of all samples during which nothing else used the device; where it is 0 the numbers are of all samples.
    warmup: calls before the first sample. calls: in one sample, of which a time is the mean. together: candidates in
    the same rounds, this one included. steady: whether in each process the first and the second half of the rounds
    agree within 10 %.
    """

    device: str
    impl: str
    regime: str
    cache: str
    median_ms: float
    low_ms: float
    high_ms: float
    first_call_ms: float
    rounds: int
    processes: int
    clean: float
    dropped: int
    steady: bool
    warmup: int
    calls: int
    copies: int
    together: int
    threads: int | None
    notes: tuple[str, ...]
    source: str = "measured"

    def to_dict(self) -> dict[str, Any]:
        """An entry of `latencies`."""
        return {**asdict(self), "notes": list(self.notes)}


def timing(processes: Sequence[Process], lane: Lane) -> Timing:
    """The timing of a lane over the processes that have it.

    Raises MeasureError "no valid sample: ..." where no clock gave a valid reading, and where none has the lane.
    """
    found = list(_with_track(processes, lane))
    if not found:
        raise MeasureError(f"no valid sample: {lane.candidate} was not measured ({lane.impl}, {lane.regime})")
    first, track = found[0]
    times = [time for _, one in found for time in one.times_ms]
    summary = summarise(clean_times(processes, lane) or [math.nan if time is None else time for time in times])
    rounds = [reason for process, _ in found for reason in process.disturbances(lane)]
    return Timing(
        device=str(first.environment.get("device_name", "")),
        impl=lane.impl,
        regime=lane.regime,
        cache=track.cache,
        median_ms=summary.median,
        low_ms=summary.low,
        high_ms=summary.high,
        first_call_ms=track.first_call_ms,
        rounds=summary.count,
        processes=len({process.seed for process, _ in found}),
        clean=rounds.count(None) / len(rounds),
        dropped=times.count(None),
        steady=all(is_steady([time for time in one.times_ms if time is not None]) for _, one in found),
        warmup=track.warmup,
        calls=track.calls,
        copies=track.copies,
        together=len({other.lane.candidate for other in first.tracks}),
        threads=first.environment.get("threads"),
        notes=tuple(dict.fromkeys(note for _, one in found for note in one.notes)),
    )


def _with_track(processes: Sequence[Process], lane: Lane) -> Iterator[tuple[Process, Track]]:
    for process in processes:
        track = process.track(lane)
        if track is not None:
            yield process, track
