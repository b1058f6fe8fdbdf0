"""How often the system took the CPU away from this process: the portable sign of competitors."""

from __future__ import annotations

import time
from collections.abc import Callable


class SwitchesGuard:
    """Disturbed: 0.1 or more involuntary context switches of this process per millisecond.

    Every thread of the process counts, and threads that outnumber the CPUs take them from each other. A competitor on
    a CPU that this process does not use goes unseen. `switches` counts since the process began, `now` in seconds.
    """

    name = "context switches"

    def __init__(
        self,
        switches: Callable[[], int] | None = None,
        *,
        now: Callable[[], float] = time.perf_counter,
        limit_per_ms: float = 0.1,
    ) -> None:
        self.switches, self.now, self.limit_per_ms = switches or involuntary, now, limit_per_ms
        self.start()

    def start(self) -> None:
        self.since, self.before = self.now(), self.switches()

    def stop(self) -> str | None:
        elapsed_ms = (self.now() - self.since) * 1e3
        taken = self.switches() - self.before
        if not taken or taken < self.limit_per_ms * elapsed_ms:
            return None
        return f"context switches: the CPU was taken away {taken} times in {elapsed_ms:.0f} ms"


def involuntary() -> int:
    """Involuntary context switches of all threads of this process so far. Not on Windows, which has no `resource`."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
