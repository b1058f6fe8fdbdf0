"""What was read off the clock, kept whole: every verdict can be made again from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from explorer.errors import MeasureError


@dataclass(frozen=True, order=True)
class Lane:
    """One thing that is timed: a candidate in an implementation (`eager`, `compile`) and a regime (see `regimes`)."""

    candidate: str
    impl: str
    regime: str


@dataclass(frozen=True)
class Track:
    """One lane in one process.

    times_ms: milliseconds a call, one for each round; None where the clock gave no valid reading. first_call_ms: the
    very first call of this implementation, with all that it compiles or allocates. warmup: calls before the first
    round. calls: in one sample, of which a time is the mean. copies: of the weights, used in turn. cache: `warm`, `cold
    weights` where every copy is touched in a sample and all of them are larger than the last cache, `cold` where the
    cache is overwritten before each call. notes: what could not be had, and why.
    """

    lane: Lane
    times_ms: tuple[float | None, ...]
    first_call_ms: float
    warmup: int
    calls: int
    copies: int = 1
    cache: str = "warm"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """Why a candidate has no times: none at all, or none in one implementation or regime.

    details: the traceback, or the last lines that its process wrote.
    """

    candidate: str
    reason: str
    impl: str | None = None
    regime: str | None = None
    out_of_memory: bool = False
    details: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


@dataclass(frozen=True)
class Process:
    """Lanes of one worker process that met the same rounds; `failed` are those that did not get that far.

    seed: of the process: records with the same one are of one process. disturbed: for each round None, or what else
    used the device. guard: what watched for it. environment: versions, threads, precision, clocks before and after.
    facts: by candidate and implementation what was seen besides times: `sdpa` (kernels that attention ran),
    `compile_s`, `recompiles`, `peak` (bytes), `parity`.
    """

    seed: int
    tracks: tuple[Track, ...]
    disturbed: tuple[str | None, ...]
    guard: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: tuple[Failed, ...] = ()

    def track(self, lane: Lane) -> Track | None:
        """The lane's track, None where it has none here."""
        return next((track for track in self.tracks if track.lane == lane), None)

    @property
    def clean(self) -> tuple[int, ...]:
        """The rounds in which nothing else was seen."""
        return tuple(index for index, why in enumerate(self.disturbed) if why is None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Process:
        """What `to_dict` made, read again."""
        tracks = tuple(
            Track(**{**t, "lane": Lane(**t["lane"]), "times_ms": tuple(t["times_ms"]), "notes": tuple(t["notes"])})
            for t in data["tracks"]
        )
        failed = tuple(Failed(**one) for one in data.get("failed", ()))
        return cls(**{**data, "tracks": tracks, "disturbed": tuple(data["disturbed"]), "failed": failed})


Pairs = list[list[tuple[float, float]]]
"""For each process the times of two lanes in its clean rounds."""


def clean_times(processes: Sequence[Process], lane: Lane) -> list[float]:
    """Milliseconds of a lane in all clean rounds of all processes. Raises MeasureError where their threads differ."""
    _refuse_mixed_threads(processes)
    return [time for (time,) in _together(processes, (lane,))]


def clean_pairs(processes: Sequence[Process], base: Lane, other: Lane) -> Pairs:
    """Times of two lanes in the same clean rounds, process by process; processes that have none are left out.

    Records of one seed are of one process, which had no room for all candidates at once. Raises MeasureError where the
    processes ran with different numbers of threads.
    """
    _refuse_mixed_threads(processes)
    found: dict[int, list[tuple[float, float]]] = {}
    for process in processes:
        for one, another in _together([process], (base, other)):
            found.setdefault(process.seed, []).append((one, another))
    return list(found.values())


def _refuse_mixed_threads(processes: Sequence[Process]) -> None:
    threads = {process.environment.get("threads") for process in processes}
    if len(threads) > 1:
        counts = " and ".join(map(str, sorted(threads, key=str)))
        raise MeasureError(f"times taken with {counts} threads are not compared: measure all with the same number")


def _together(processes: Sequence[Process], lanes: Sequence[Lane]) -> Iterator[tuple[float, ...]]:
    for process in processes:
        tracks = [process.track(lane) for lane in lanes]
        if None in tracks:
            continue
        for index in process.clean:
            times = [track.times_ms[index] for track in tracks if track is not None]
            if None not in times:
                yield tuple(time for time in times if time is not None)
