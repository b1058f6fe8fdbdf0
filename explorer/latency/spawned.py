"""The parent's side of one worker process: what it says, how it ends, and ending it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from explorer.errors import MeasureError
from explorer.latency.job import Job

# Isolated: the folder of the caller must not come before the standard library; `path` is what the caller imports from.
_COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from explorer.latency.worker import main; main()"
_BEGIN_S = 120.0
"""Seconds that a worker may take before its first word: it imports torch, on a busy machine from a cold disk."""
_FAREWELL_S = 10.0
"""Seconds from the end of a worker's output to the end of its process."""
_LOOK_S = 1.0
"""Seconds of silence after which it is looked whether the worker is still there."""
_TAIL = 2000


class Lost(Exception):
    """A worker that ended, or was ended, before it was done.

    details: the last that it wrote to standard error. lane_only: whether the candidate's other lanes may go on.
    """

    def __init__(self, how: str, details: str, *, lane_only: bool = False) -> None:
        super().__init__(how)
        self.details = details
        self.lane_only = lane_only


@contextlib.contextmanager
def spawned(job: Job) -> Iterator[Spawned]:
    """A fresh interpreter that measures a job; in the end it is gone, with all its children."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _COMMAND, *job.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # a Ctrl-C is the parent's, which ends the whole group
        )
        worker = Spawned(process, errors, job.effort.hang_s)
        try:
            worker.tell(job)
            yield worker
        finally:
            worker.kill()


class Spawned:
    """A worker process, its standard error and the seconds for which it may say nothing."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes], hang_s: float) -> None:
        self._process = process
        self._errors = errors
        self._hang_s = hang_s
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def tell(self, job: Job) -> None:
        """Give it the job; one that has already ended takes none."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(json.dumps(job.to_dict()).encode())

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it says, in order, until it is done.

        Raises Lost where it ends early, says nothing for too long or cannot go on; MeasureError where it fails by
        itself.
        """
        patience = max(_BEGIN_S, self._hang_s)
        while True:
            line = self._line(patience)
            if line is None:
                self.kill()
                raise Lost(f"no sign of life for {patience:g} s", self._tail())
            message = json.loads(line) if line.endswith(b"\n") else None
            if message is None:
                raise Lost(self._how_it_ended(), self._tail())
            if message["event"] == "end":
                return
            if message["event"] == "lost":
                raise Lost(message["reason"], self._tail(), lane_only=message["lane_only"])
            if message["event"] == "broken":
                raise MeasureError(f"a measuring process failed: {message['reason']}")
            yield message
            patience = self._hang_s

    def _line(self, patience: float) -> bytes | None:
        """The next line, b"" after the last one, None where nothing came for so many seconds.

        An ended worker says nothing more, though a child that it left may hold its output open.
        """
        until = time.monotonic() + patience
        while (left := until - time.monotonic()) > 0:
            ended = self._process.poll() is not None
            try:
                return self._lines.get(timeout=min(_LOOK_S, left))
            except queue.Empty:
                if ended:
                    return b""
        return None

    def kill(self) -> None:
        """End the worker and what it started, by its own group; it is waited for, so that no zombie stays.

        The group is ended also where the worker has ended by itself: a child that it left would hold its output open.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the whole group has ended
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._listener.join(timeout=_FAREWELL_S)  # not for ever: a child may have left the group

    def _listen(self) -> None:
        """Pass on what it says; a line without an end is its last."""
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for line in pipe:
                self._lines.put(line)
        self._lines.put(b"")

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=_FAREWELL_S)
        except subprocess.TimeoutExpired:
            return "its process closed its output"
        if code >= 0:
            return f"its process exited with code {code}"
        name = signal.Signals(-code).name
        hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"

    def _tail(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL))
        return self._errors.read().decode(errors="replace").strip()
