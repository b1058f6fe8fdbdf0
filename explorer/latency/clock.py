"""Clocks that read only after the device has finished."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Call = Callable[[], object]


class Clock(Protocol):
    """Times calls; replace it by a virtual one in tests."""

    def time(self, call: Call, calls: int) -> float:
        """Milliseconds that `calls` calls take, until the work of the last is done."""


class Event(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


def nothing() -> None:
    """What waiting for a CPU takes: it has finished when the call returns."""


@dataclass(frozen=True)
class PerfCounterClock:
    """Reads `now` (seconds) before the calls, one after the other, and after them; waits for the device both times."""

    synchronize: Callable[[], object] = nothing
    now: Callable[[], float] = time.perf_counter

    def time(self, call: Call, calls: int) -> float:
        self.synchronize()
        start = self.now()
        for _ in range(calls):
            call()
        self.synchronize()
        return (self.now() - start) * 1e3


@dataclass(frozen=True)
class CudaEventClock:
    """Two events around the calls on the stream that they are queued on; read once the second has passed."""

    event: Callable[[], Event]
    stream: Callable[[], object]

    def time(self, call: Call, calls: int) -> float:
        stream = self.stream()
        start, end = self.event(), self.event()
        start.record(stream)
        for _ in range(calls):
            call()
        end.record(stream)
        end.synchronize()
        return start.elapsed_time(end)


@dataclass(frozen=True)
class SingleCallClock:
    """Times every call by itself with another clock, and adds up; `before` runs before each call, outside the time."""

    clock: Clock
    before: Callable[[], object] = nothing

    def time(self, call: Call, calls: int) -> float:
        elapsed = 0.0
        for _ in range(calls):
            self.before()
            elapsed += self.clock.time(call, 1)
        return elapsed
