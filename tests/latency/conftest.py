"""A world in which time passes only when something says so: every number in these tests is exact."""

from __future__ import annotations

import gc

import pytest

from explorer.latency.clock import CudaEventClock, PerfCounterClock
from explorer.latency.effort import Effort


class VirtualTime:
    """The host's clock in seconds; `sleep(ms)` is the only thing that moves it."""

    def __init__(self):
        self.seconds = 0.0

    def sleep(self, ms):
        self.seconds += ms / 1e3

    def clock(self):
        return PerfCounterClock(now=lambda: self.seconds)

    def sleeper(self, *times_ms):
        """A call that takes these times one after the other, and the last of them ever after."""
        left = list(times_ms)
        return lambda: self.sleep(left.pop(0) if len(left) > 1 else left[0])


class VirtualDevice:
    """A device that works off a queue: `launch` returns at once, `synchronize` waits."""

    def __init__(self, time):
        self.time = time
        self.done_at = 0.0

    def launch(self, ms):
        self.done_at = max(self.done_at, self.time.seconds) + ms / 1e3

    def synchronize(self):
        self.time.seconds = max(self.time.seconds, self.done_at)

    def synchronized_clock(self):
        return PerfCounterClock("end-to-end", synchronize=self.synchronize, now=lambda: self.time.seconds)

    def event_clock(self):
        return CudaEventClock(event=lambda: VirtualEvent(self), stream=lambda: "a stream")


class VirtualEvent:
    """Passes when the work queued before it is done; refuses to be read earlier, as CUDA's do."""

    def __init__(self, device):
        self.device = device

    def record(self, stream):
        assert stream == "a stream"
        self.at = max(self.device.done_at, self.device.time.seconds)

    def synchronize(self):
        self.device.time.seconds = max(self.device.time.seconds, self.at)

    def elapsed_time(self, end_event):
        if self.device.time.seconds < end_event.at:
            raise RuntimeError("the event has not passed yet")
        return (end_event.at - self.at) * 1e3


@pytest.fixture
def time():
    return VirtualTime()


@pytest.fixture
def virtual_device(time):
    return VirtualDevice(time)


@pytest.fixture
def effort():
    """20 samples of one call each; warm after 30 ms at the earliest."""
    return Effort(rounds=20, fewest_rounds=20, sample_ms=1, warm_ms=30, warm_limit_ms=1_000, budget_ms=10_000)


@pytest.fixture(autouse=True)
def small_heap():
    """Measuring collects garbage when a candidate leaves; what other tests left behind is not part of that."""
    gc.freeze()
    yield
    gc.unfreeze()
