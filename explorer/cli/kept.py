"""What a command measures, kept in its folder until a result holds it; `--resume` goes on from there."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from explorer.errors import MeasureError, UsageError
from explorer.latency.job import Job
from explorer.latency.raw import Failed, Process
from explorer.latency.store import Store

MEASUREMENTS = "measurements.jsonl"


@dataclass(frozen=True)
class Resumed(Store):
    """What an interrupted run left. reused: how many records each comparison goes on with."""

    reused: list[int] = field(default_factory=list)

    def finished(self, job: Job) -> list[Process | Failed]:
        """As of a store; that the first comparison has nothing is told at once, before hours of measuring."""
        found = super().finished(job)
        if not found and not self.reused:
            same = "blueprints, options, device, threads and versions"
            _note(f"--resume: {self.path} holds nothing of this comparison with these {same}; it is measured anew")
        self.reused.append(len(found))
        return found


def measurements(folder: Path | None, resume: bool) -> Store | None:
    """Where a command keeps what it measures until it is done; None without a folder.

    Raises: UsageError where an interrupted run left some and it is not said what to do with them.
    """
    if folder is None:
        if resume:
            raise UsageError("--resume goes on in the folder of --out; name it")
        return None
    path = folder / MEASUREMENTS
    if resume and not path.exists():
        _note(f"--resume: there is no {path}, as after a run that finished; all is measured")
    elif path.exists() and not resume:
        raise UsageError(
            f"--out {folder}: an interrupted run left {MEASUREMENTS} there: add --resume to go on with it, or delete it"
        )
    return Resumed(path) if resume and path.exists() else Store(path)


@contextmanager
def keeping(store: Store | None) -> Iterator[None]:
    """Say how much was reused, and where a command that stops before its end goes on."""
    try:
        yield
    except (KeyboardInterrupt, MeasureError):
        tell_left(store)
        raise
    if isinstance(store, Resumed) and any(store.reused):
        _note(f"--resume: {sum(store.reused)} records of {store.path} were not measured again")


def forget(store: Store | None, measurements: Iterable[Mapping[str, Any]]) -> None:
    """Drop what a result that was written holds now; what another run left there stays."""
    if store is not None:
        store.forget({entry["job"] for entry in measurements})


def tell_left(store: Store | None) -> None:
    """Where a command that did not measure everything goes on, if it kept anything."""
    if store is not None and store.path.exists():
        _note(f"{store.path} keeps what was measured: the same command with --resume goes on")


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)
