"""What was read off the clock, kept whole: every verdict can be made again from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from explorer.errors import MeasureError

_LISTS = ("times_ms", "notes", "disturbed")
"""What of a track JSON has as lists."""


@dataclass(frozen=True, order=True)
class Lane:
    """One thing that is timed: a candidate in an implementation (`eager`, `compile`) and a regime (see `regimes`)."""

    candidate: str
    impl: str
    regime: str


@dataclass(frozen=True)
class Track:
    """One lane in one process.

    times_ms: milliseconds a call, one for each round; None where the clock gave no valid reading, and where the call
    was compiled again meanwhile. first_call_ms: the very first call of this implementation, with all that it compiles
    or allocates. warmup: calls before the first round. calls: in one sample, of which a time is the mean. copies: of
    the weights, used in turn. cache: `warm`, `cold weights` where every copy is touched in a sample and all of them are
    larger than the last cache, `cold` where the cache is overwritten before each call. notes: what could not be had,
    and why. disturbed: for each round None, or what else used the device during this lane's sample; empty where rounds
    were watched as wholes.
    """

    lane: Lane
    times_ms: tuple[float | None, ...]
    first_call_ms: float
    warmup: int
    calls: int
    copies: int = 1
    cache: str = "warm"
    notes: tuple[str, ...] = ()
    disturbed: tuple[str | None, ...] = ()


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
    used the device in the first of its samples that was disturbed. guard: what watched for it. environment: versions,
    threads, precision, clocks before and after. facts: by candidate and implementation what was seen besides times:
    `sdpa` (kernels that attention ran), `compile_s`, `recompiles`, `peak` (bytes), `parity`.
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

    def disturbances(self, *lanes: Lane) -> tuple[str | None, ...]:
        """For each round None, or what else used the device during the samples of these lanes, which it has."""
        found = [track.disturbed or self.disturbed for track in self.tracks if track.lane in lanes]
        return tuple(next((why for why in reasons if why), None) for reasons in zip(*found, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Process:
        """What `to_dict` made, read again."""
        tracks = tuple(
            Track(**{**track, "lane": Lane(**track["lane"]), **{name: tuple(track.get(name, ())) for name in _LISTS}})
            for track in data["tracks"]
        )
        failed = tuple(Failed(**one) for one in data.get("failed", ()))
        return cls(**{**data, "tracks": tracks, "disturbed": tuple(data["disturbed"]), "failed": failed})


Pairs = list[list[tuple[float, float]]]
"""For each process the times of two lanes in the rounds in which the samples of both were clean."""


def clean_times(processes: Sequence[Process], lane: Lane) -> list[float]:
    """Milliseconds of a lane in its clean samples of all processes. Raises MeasureError where their threads differ."""
    _refuse_mixed_threads(processes)
    return [time for (time,) in _together(processes, (lane,))]


def clean_pairs(processes: Sequence[Process], base: Lane, other: Lane) -> Pairs:
    """Times of two lanes in the same clean rounds, process by process; processes that have none are left out.

    Raises MeasureError where the processes ran with different numbers of threads.
    """
    return [shared.pairs for shared in shared_rounds(processes, base, other) if shared.pairs]


@dataclass(frozen=True)
class Shared:
    """The rounds that two lanes shared in one process: times where both samples were clean, what disturbed the rest."""

    pairs: list[tuple[float, float]]
    disturbed: list[str]


def shared_rounds(processes: Sequence[Process], base: Lane, other: Lane) -> list[Shared]:
    """The shared rounds of two lanes in each process that has both.

    Records of one seed are of one process, which had no room for all candidates at once. Raises MeasureError where the
    processes ran with different numbers of threads.
    """
    _refuse_mixed_threads(processes)
    found: dict[int, Shared] = {}
    for process in processes:
        if process.track(base) and process.track(other):
            shared = found.setdefault(process.seed, Shared([], []))
            shared.pairs.extend((one, another) for one, another in _together([process], (base, other)))
            shared.disturbed.extend(why for why in process.disturbances(base, other) if why is not None)
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
        clean = (index for index, why in enumerate(process.disturbances(*lanes)) if why is None)
        for index in clean:
            times = [track.times_ms[index] for track in tracks if track is not None]
            if None not in times:
                yield tuple(time for time in times if time is not None)
