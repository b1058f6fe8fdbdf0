"""Linux's own account of how long tasks waited for a CPU (pressure stall information)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

CPU_PRESSURE = Path("/proc/pressure/cpu")


class PressureGuard:
    """Disturbed: for 10 % of the time or more, some task of the whole machine was ready to run and had no CPU.

    The kernel adds the waiting up to the moment of reading, so that short rounds are seen as well as long ones. It does
    not say whose task waited: with more threads than CPUs our own count too. `now` in seconds.
    """

    name = "CPU pressure"

    def __init__(
        self, path: Path = CPU_PRESSURE, *, now: Callable[[], float] = time.perf_counter, limit: float = 0.10
    ) -> None:
        self.path, self.now, self.limit = path, now, limit
        self.start()

    def start(self) -> None:
        self.since, self.waited = self.now(), waited_us(self.path)

    def stop(self) -> str | None:
        elapsed_us = (self.now() - self.since) * 1e6
        waited = waited_us(self.path) - self.waited
        if not waited or waited < self.limit * elapsed_us:
            return None
        return f"CPU pressure: a task waited for a CPU in {min(1.0, waited / max(elapsed_us, 1)):.0%} of the time"


def keeps_account(path: Path = CPU_PRESSURE) -> bool:
    """Whether this system does: not outside Linux, and not where the kernel has it off, though the file is there."""
    try:
        return waited_us(path) >= 0
    except (OSError, ValueError):
        return False


def waited_us(path: Path = CPU_PRESSURE) -> int:
    """Microseconds since boot in which some task waited for a CPU: `total` of the line `some`.

    Raises OSError where it cannot be read, ValueError where it is written in another form.
    """
    for line in path.read_text().splitlines():
        words = line.split()
        if words and words[0] == "some":
            return int(words[-1].removeprefix("total="))
    raise ValueError(f"{path} has no line 'some'")
