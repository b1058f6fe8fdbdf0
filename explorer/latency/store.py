"""What has been measured, kept in a file: a run that is repeated takes up where it stopped."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from explorer.latency.job import Job
from explorer.latency.raw import Failed, Process


@dataclass(frozen=True)
class Store:
    """A file of JSON lines (`measurements.jsonl`), one for each record of a job. Delete it to measure anew."""

    path: Path

    def add(self, job: Job, found: Process | Failed) -> None:
        """Append one record, in one piece: what an interrupted run leaves behind is whole, but for its last line."""
        kind = "process" if isinstance(found, Process) else "failed"
        line = json.dumps({"job": job.digest, kind: found.to_dict()})
        with self.path.open("ab+") as file:
            end = "\n" if _is_cut(file) else ""
            file.write(f"{end}{line}\n".encode())

    def finished(self, job: Job) -> list[Process | Failed]:
        """What is kept of the job, in the order in which it was found."""
        return [_found(entry) for entry in self._entries() if entry.get("job") == job.digest]

    def forget(self, digests: Collection[str]) -> None:
        """Drop the records of these jobs; without others the file goes too."""
        if not self.path.exists():
            return
        left = [entry for entry in self._entries() if entry.get("job") not in digests]
        if not left:
            self.path.unlink()
            return
        beside = self.path.with_suffix(".tmp")
        beside.write_text("".join(json.dumps(entry) + "\n" for entry in left), encoding="utf-8")
        beside.replace(self.path)

    def _entries(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut off when a run was interrupted: measured again
            if isinstance(entry, dict):
                yield entry


def _is_cut(file: BinaryIO) -> bool:
    """Whether the last line has no end: an interrupted run stopped while it wrote."""
    if not file.seek(0, io.SEEK_END):
        return False
    file.seek(-1, io.SEEK_END)
    return file.read(1) != b"\n"


def _found(entry: dict[str, Any]) -> Process | Failed:
    return Process.from_dict(entry["process"]) if "process" in entry else Failed(**entry["failed"])
