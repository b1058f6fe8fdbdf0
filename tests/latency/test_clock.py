"""Clocks wait for the device. Public case C1."""

import time as real_time

import pytest

from explorer.latency.clock import CudaEventClock, PerfCounterClock, SingleCallClock
from explorer.latency.effort import EFFORTS
from explorer.latency.measure import measure
from explorer.latency.raw import Lane
from explorer.latency.regimes import Regime, in_turn, regimes_for
from explorer.latency.timing import timing
from tests.latency.virtual import ScriptedGuard, bare


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_a_launch_that_returns_at_once_takes_its_time(virtual_device, make):
    clock = getattr(virtual_device, make)()
    assert clock.time(lambda: virtual_device.launch(6), 10) == pytest.approx(60)


def measured(virtual_device, effort, clock):
    regime = Regime("throughput", clock, in_turn)
    launches = bare("launches", lambda: lambda: virtual_device.launch(6))
    process = measure([launches], device="cpu", effort=effort, regimes=[regime], guard=ScriptedGuard())
    return process, Lane("launches", "eager", "throughput")


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_case_c1(virtual_device, effort, make):
    clock = getattr(virtual_device, make)()
    process, lane = measured(virtual_device, effort, clock)
    assert process.track(lane).times_ms == pytest.approx([6] * 20)


def test_a_clock_that_does_not_wait_gives_a_reason_and_no_number(virtual_device, time, effort):
    process, lane = measured(virtual_device, effort, time.clock())
    assert set(process.track(lane).times_ms) == {None}
    with pytest.raises(Exception, match=r"^no valid sample: all 20 readings were zero, negative or not finite$"):
        timing([process], lane)


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_work_queued_before_is_not_counted(virtual_device, make):
    clock = getattr(virtual_device, make)()
    virtual_device.launch(50)
    assert clock.time(lambda: virtual_device.launch(2), 3) == pytest.approx(6)


def slow_launch(time, virtual_device):
    """5 ms of the host for 1 ms of the device."""

    def call():
        time.sleep(5)
        virtual_device.launch(1)

    return call


def test_events_count_the_gaps_of_a_slow_host(virtual_device, time):
    assert virtual_device.event_clock().time(slow_launch(time, virtual_device), 4) == pytest.approx(21)


def test_single_calls_start_and_end_on_an_idle_device(virtual_device, time):
    """Latency: launching and running one after the other, while calls in a row hide one behind the other."""

    def call():
        time.sleep(1)
        virtual_device.launch(5)

    waiting = virtual_device.synchronized_clock()
    assert SingleCallClock(waiting).time(call, 4) == pytest.approx(4 * 6)
    assert waiting.time(call, 4) == pytest.approx(1 + 4 * 5)


@pytest.mark.parametrize("make", ["synchronized_clock", "event_clock"])
def test_what_runs_before_a_single_call_is_outside_of_its_time(virtual_device, make):
    """Public case C10: writing the buffer that empties the cache takes 100 ms, the call 2."""
    before = []

    def flush():
        before.append(virtual_device.launch(100))

    clock = SingleCallClock(getattr(virtual_device, make)(), before=flush)
    assert clock.time(lambda: virtual_device.launch(2), 3) == pytest.approx(6)
    assert len(before) == 3


@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("cpu", ["host"]),
        ("cuda", ["throughput", "device", "latency"]),
        ("cuda:1", ["throughput", "device", "latency"]),
        ("mps", ["throughput", "latency"]),
        ("xpu", ["throughput", "latency"]),
    ],
)
def test_the_regimes_of_a_device(device, names):
    assert [regime.name for regime in regimes_for(device)] == names


def test_events_time_what_is_queued_on_cuda_and_the_host_times_what_returns():
    throughput, graph, latency = regimes_for("cuda")
    assert isinstance(throughput.clock, CudaEventClock)
    assert isinstance(graph.clock, CudaEventClock)
    assert isinstance(latency.clock, SingleCallClock)
    assert isinstance(regimes_for("mps")[0].clock, PerfCounterClock)


def test_the_clock_of_a_cpu_is_the_hosts_finest():
    (host,) = regimes_for("cpu")
    assert host.clock.now is real_time.perf_counter
    assert host.clock.time(lambda: None, 100) > 0


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
def test_a_sample_on_cuda_is_shorter(effort):
    assert (effort.on("cpu").sample_ms, effort.on("cuda:1").sample_ms) == (20, 5)
    assert effort.on("cuda").rounds == effort.rounds
