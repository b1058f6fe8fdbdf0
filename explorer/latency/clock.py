"""Clocks that read only after the device has finished.

A clock's `regime` says whose speed its numbers show:

- `device`: two events on the device's own queue. Where the host launches more slowly than the device runs, the
  gaps count.
- `host`: the host's clock around the calls; on a CPU the host is the device.
- `end-to-end`: the host's clock around the calls, the device idle before and after: launching and running together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

Call = Callable[[], object]


class Clock(Protocol):
    """Times calls; replace it by a virtual one in tests."""

    @property
    def regime(self) -> str:
        """`device`, `host` or `end-to-end`."""

    def time(self, call: Call, calls: int) -> float:
        """Milliseconds from the first of `calls` calls, one after the other, until the work of the last is done."""


class Event(Protocol):
    """What is used of `torch.cuda.Event`."""

    def record(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end_event: Any) -> float: ...


def _already_done() -> None:
    """A CPU has finished when the call returns."""


@dataclass(frozen=True)
class PerfCounterClock:
    """Reads `now` (seconds) before the calls and after them, waiting for the device on both sides."""

    regime: str = "host"
    synchronize: Callable[[], object] = _already_done
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
    regime: str = "device"

    def time(self, call: Call, calls: int) -> float:
        stream = self.stream()
        start, end = self.event(), self.event()
        start.record(stream)
        for _ in range(calls):
            call()
        end.record(stream)
        end.synchronize()
        return start.elapsed_time(end)


def clock_for(device: str) -> Clock:
    """The clock of a device as `resolve_device` gives it: events on CUDA (and ROCm), the host's clock elsewhere."""
    import torch

    kind = torch.device(device).type
    if kind == "cpu":
        return PerfCounterClock()
    if kind == "cuda":
        return CudaEventClock(
            event=lambda: torch.cuda.Event(enable_timing=True), stream=partial(torch.cuda.current_stream, device)
        )
    return PerfCounterClock(regime="end-to-end", synchronize=partial(torch.accelerator.synchronize, device))
