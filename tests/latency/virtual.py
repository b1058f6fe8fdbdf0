"""A world in which time passes only when something says so: every number in these tests is exact."""

from __future__ import annotations

from explorer.latency.arms import Candidate
from explorer.latency.clock import CudaEventClock, PerfCounterClock
from explorer.latency.measure import measure
from explorer.latency.raw import Lane
from explorer.latency.regimes import Regime, in_turn
from explorer.latency.runner import Bare


class VirtualTime:
    """The host's clock in seconds; `sleep(ms)` is the only thing that moves it."""

    def __init__(self):
        self.seconds = 0.0

    def sleep(self, ms):
        self.seconds += ms / 1e3

    def clock(self):
        return PerfCounterClock(now=lambda: self.seconds)

    def regimes(self):
        return (Regime("host", self.clock(), in_turn),)

    def sleeper(self, *times_ms):
        """A call that takes these times one after the other, and the last of them ever after."""
        left = list(times_ms)
        return lambda: self.sleep(left.pop(0) if len(left) > 1 else left[0])

    def candidate(self, key, *times_ms):
        """A sleeper as a candidate, awake when it is built."""
        return bare(key, lambda: self.sleeper(*times_ms))


def bare(key, make, least_bytes=0):
    """A candidate that runs the function that `make` returns."""
    return Candidate(key, lambda: Bare(make()), least_bytes)


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
        return PerfCounterClock(synchronize=self.synchronize, now=lambda: self.time.seconds)

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


class ScriptedGuard:
    """Says of each round what it is told to, and after that nothing."""

    name = "a script"

    def __init__(self, *reasons):
        self.reasons = list(reasons)
        self.watching = False

    def start(self):
        assert not self.watching
        self.watching = True

    def stop(self):
        assert self.watching
        self.watching = False
        return self.reasons.pop(0) if self.reasons else None


def run(candidates, time, effort, **options):
    """The record of candidates in virtual time."""
    options = {"regimes": time.regimes(), "guard": ScriptedGuard(), **options}
    return measure(candidates, device="cpu", effort=effort, **options)


def lane(key, impl="eager", regime="host"):
    return Lane(key, impl, regime)


def track(process, key, **other):
    return process.track(lane(key, **other))
