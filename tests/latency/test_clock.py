"""Clocks wait for the device. Public case C1."""

import time as real_time

import pytest

from explorer.latency.clock import CudaEventClock, PerfCounterClock, clock_for
from explorer.latency.measure import Candidate, measure
from explorer.latency.timing import Failure


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_a_launch_that_returns_at_once_takes_its_time(virtual_device, make):
    clock = getattr(virtual_device, make)()
    assert clock.time(lambda: virtual_device.launch(6), 10) == pytest.approx(60)


@pytest.mark.parametrize(("make", "regime"), [("synchronized_clock", "end-to-end"), ("event_clock", "device")])
def test_case_c1(virtual_device, effort, make, regime):
    candidate = Candidate("launches", lambda: lambda: virtual_device.launch(6))
    clock = getattr(virtual_device, make)()
    timing = measure([candidate], device="cpu", effort=effort, clock=clock)["launches"]
    assert (timing.median_ms, timing.low_ms, timing.high_ms) == pytest.approx((6, 6, 6))
    assert timing.regime == regime


def test_a_clock_that_does_not_wait_gives_a_reason_and_no_number(virtual_device, time, effort):
    candidate = Candidate("launches", lambda: lambda: virtual_device.launch(6))
    outcome = measure([candidate], device="cpu", effort=effort, clock=time.clock())["launches"]
    assert isinstance(outcome, Failure)
    assert outcome.reason == "no valid sample: all 20 readings were zero, negative or not finite"


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_work_queued_before_is_not_counted(virtual_device, make):
    clock = getattr(virtual_device, make)()
    virtual_device.launch(50)
    assert clock.time(lambda: virtual_device.launch(2), 3) == pytest.approx(6)


def test_events_count_the_gaps_of_a_slow_host(virtual_device, time):
    def call():
        time.sleep(5)
        virtual_device.launch(1)

    assert virtual_device.event_clock().time(call, 4) == pytest.approx(21)


@pytest.mark.parametrize(
    ("device", "kind", "regime"),
    [
        ("cpu", PerfCounterClock, "host"),
        ("cuda", CudaEventClock, "device"),
        ("cuda:1", CudaEventClock, "device"),
        ("mps", PerfCounterClock, "end-to-end"),
    ],
)
def test_the_clock_of_a_device(device, kind, regime):
    clock = clock_for(device)
    assert isinstance(clock, kind)
    assert clock.regime == regime


def test_the_clock_of_a_cpu_is_the_hosts_finest():
    assert clock_for("cpu").now is real_time.perf_counter
    assert clock_for("cpu").time(lambda: None, 100) > 0
