"""Fresh worker processes for one comparison, one after the other; what ends a process costs one candidate only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.job import Job
from explorer.latency.protocol import OnProgress, Progress
from explorer.latency.raw import Failed, Lane, Process
from explorer.latency.spawned import Lost, spawned
from explorer.latency.store import Store

_HARDLY = {
    "rounds": 1,
    "fewest_rounds": 1,
    "most_rounds": 1,
    "sample_ms": 0,
    "warm_ms": 0,
    "warm_limit_ms": 0,
    "budget_ms": 0,
}
"""The effort for what is looked at besides times."""


def measure_job(
    job: Job, *, store: Store | None = None, on_progress: OnProgress | None = None
) -> Iterator[Process | Failed]:
    """What the processes of a job find, as they find it; what the store keeps of the job comes first and is not redone.

    Process: a record; several of one seed are groups of candidates that had no room beside each other. Failed: a
    candidate that crashed, hung or ended a worker, or one of its lanes that did; the others are measured without it. A
    candidate that has no time at all in one process is left out of the later ones.

    Raises MeasureError where a worker ends before it has begun with a candidate, and so does the one in its place.
    """
    crew = _Crew(job, store, on_progress or (lambda progress: None))
    kept = [] if store is None else store.finished(job)
    for found in kept:
        crew.note(found)
    yield from kept
    for index in range(job.effort.processes):
        yield from crew.process(job.seed + index)


class _Crew:
    """What is known of the candidates of a job so far."""

    def __init__(self, job: Job, store: Store | None, on_progress: OnProgress) -> None:
        self.job = job
        self.store = store
        self.on_progress = on_progress
        self.failed: set[str] = set()
        self.without: set[Lane] = set()
        self.uninspected: set[str] = set()
        self.tried: dict[int, set[str]] = {}

    def note(self, found: Process | Failed) -> None:
        """Which candidates need not run again, in this process or in any."""
        if isinstance(found, Failed) and found.impl and found.regime:
            self.without.add(Lane(found.candidate, found.impl, found.regime))
            return
        if isinstance(found, Failed):
            self.failed.add(found.candidate)
            return
        timed, failed = {track.lane.candidate for track in found.tracks}, {one.candidate for one in found.failed}
        self.failed |= failed - timed
        self.tried.setdefault(found.seed, set()).update(timed | failed)

    def process(self, seed: int) -> Iterator[Process | Failed]:
        """One process, and another one in its place as often as a candidate ends it."""
        while missing := self.missing(seed):
            needed = {other for key in missing for other in self.job.beside[key]}
            part = self.job.only(missing | (needed - self.failed))
            without, uninspected = tuple(sorted(self.without)), tuple(sorted(self.uninspected))
            part = replace(part, seed=seed, without=without, uninspected=uninspected)
            for found in self.run(part):
                self.note(found)
                if self.store is not None:
                    self.store.add(self.job, found)
                yield found
            assert self.missing(seed) < missing or self.without > set(part.without), (
                "a worker that ends has tried all its candidates, or lost one, or a lane"
            )

    def missing(self, seed: int) -> set[str]:
        """The candidates that have not been tried in the process of this seed."""
        return {recipe.key for recipe in self.job.recipes} - self.failed - self.tried.get(seed, set())

    def run(self, part: Job) -> Iterator[Process | Failed]:
        """What one worker finds; in the end the candidate or lane that it was with when it was lost.

        One that is lost before its first word is replaced once: a machine short of memory or processes may have more of
        them a moment later.
        """
        try:
            yield from self.attended(part)
        except _NotBegun:
            try:
                yield from self.attended(part)
            except _NotBegun as error:
                raise MeasureError(f"a measuring process could not begin, twice: {error}") from error

    def attended(self, part: Job) -> Iterator[Process | Failed]:
        """What one worker finds, in the end what it was lost with. Raises _NotBegun where that was nothing yet."""
        last: Progress | None = None
        timed: Process | None = None
        try:
            with spawned(part) as worker:
                for message in worker.messages():
                    kind, data = message.pop("event"), message
                    if kind == "progress":
                        last = Progress(**data)
                        self.on_progress(last)
                    elif kind == "timed":
                        timed = Process.from_dict(data)
                    elif kind == "facts" and timed is not None:
                        timed = _with_facts(timed, data["candidate"], data["facts"])
                    elif kind == "process":
                        timed = None
                        yield Process.from_dict(data)
        except Lost as lost:
            if last is None or last.stage != "inspecting":
                yield _blamed(last, lost)
            elif timed is not None:
                yield self.inspected(timed, part, last.candidate, lost)

    def inspected(self, timed: Process, part: Job, suspect: str, lost: Lost) -> Process:
        """A record whose worker was lost when it looked for the facts of a candidate, after all times were taken.

        Fresh workers look for the facts that it lacks: one for the others, one for the suspect, which then has the
        memory that all had. Later processes do without the suspect's. What ran out of memory beside others may have
        enough in the next worker, which has less to do: it is not in here.
        """
        from explorer.latency.facts import not_looked_at

        self.uninspected.add(suspect)
        others = [key for key in _unseen(timed) if key not in {suspect, *part.uninspected}]
        groups = [others, [suspect]] if len(part.recipes) > 1 else []
        for keys in filter(None, groups):
            for key, facts in self.facts(part.only(keys)):
                timed = _with_facts(timed, key, facts)
        reason = f"{lost} while inspecting {suspect}"
        for lane in (track.lane for track in timed.tracks):
            if not _is_seen(timed, lane):
                timed = _with_facts(timed, lane.candidate, {lane.impl: not_looked_at(lane.impl, reason)})
        return replace(timed, failed=tuple(one for one in timed.failed if not one.out_of_memory))

    def facts(self, part: Job) -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
        """What a worker that takes hardly any times finds besides; nothing where it cannot go on."""
        try:
            for found in self.run(replace(part, effort=replace(part.effort, **_HARDLY))):
                if isinstance(found, Process):
                    yield from found.facts.items()
        except MeasureError:
            return  # the times are there all the same


def _unseen(record: Process) -> list[str]:
    """The candidates that have a lane of which no facts are known."""
    lanes = [track.lane for track in record.tracks]
    return list(dict.fromkeys(lane.candidate for lane in lanes if not _is_seen(record, lane)))


def _is_seen(record: Process, lane: Lane) -> bool:
    return "sdpa" in record.facts.get(lane.candidate, {}).get(lane.impl, {})


def _with_facts(timed: Process, candidate: str, facts: Mapping[str, Mapping[str, Any]]) -> Process:
    """The record with facts of a candidate beside those that it has of it already."""
    had = timed.facts.get(candidate, {})
    found = {impl: {**had.get(impl, {}), **more} for impl, more in facts.items()}
    return replace(timed, facts={**timed.facts, candidate: {**had, **found}})


class _NotBegun(Exception):
    """A worker ended before it had announced a candidate."""


def _blamed(last: Progress | None, lost: Lost) -> Failed:
    if last is None:
        raise _NotBegun(f"{lost}: {lost.details}") from lost
    if lost.lane_only:
        return Failed(last.candidate, str(lost), last.impl, last.regime, details=lost.details)
    lane = "".join(f", {word}" for word in (last.impl, last.regime) if word)
    return Failed(last.candidate, f"{lost} while {last.stage}{lane}", details=lost.details)
