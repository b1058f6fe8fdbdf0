"""How a regime calls the steps of several copies; CUDA graphs on a pretended CUDA."""

import math
import warnings
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from explorer.latency import regimes
from explorer.latency.failure import CaptureLost
from explorer.latency.regimes import Regime, in_a_graph, in_turn, regime_notes


def steps(log, count):
    return [partial(log.append, index) for index in range(count)]


def test_copies_take_turns():
    log = []
    ready = in_turn(steps(log, 3))
    for _ in range(7):
        ready.call()
    assert log == [0, 1, 2, 0, 1, 2, 0]
    assert (ready.each, ready.turn) == (1, 3)


class PretendedCuda:
    """Streams, and a graph that keeps what was called while it was captured."""

    def __init__(self, log):
        self.log = log
        self.streams = ["default"]
        self.strict = 0
        self.warned = False
        self.made = []

    def new_stream(self, device):
        self.made.append(Stream(device))
        return self.made[-1]

    @contextmanager
    def stream(self, stream):
        before = list(self.streams)
        self.streams.append(stream)
        try:
            yield
        finally:
            self.streams[:] = before

    @contextmanager
    def graph(self, graph, stream):
        """Like torch's, which leaves the side stream as the current one where capturing fails."""
        self.streams.append(stream)
        before = len(self.log)
        yield
        self.streams.pop()
        graph.steps = self.log[before:]

    def be_strict(self, mode):
        """Like torch's, which has changed the mode when it warns."""
        self.strict = {"error": 2}.get(mode, mode)
        if not self.warned:
            self.warned = True
            warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=2)


class Stream:
    def __init__(self, device=0):
        self.device_index = device
        self.waits = []

    def wait_stream(self, other):
        self.waits.append(other)


class Graph:
    def __init__(self):
        self.replays = 0

    def replay(self):
        self.replays += 1


@pytest.fixture
def cuda(monkeypatch):
    log = []
    pretended = PretendedCuda(log)
    default = Stream()
    pretended.streams = [default]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: default)
    monkeypatch.setattr(torch.cuda, "Stream", pretended.new_stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "device", lambda device: pretended.stream("device"))
    monkeypatch.setattr(torch.cuda, "stream", pretended.stream)
    monkeypatch.setattr(torch.cuda, "graph", pretended.graph)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: pretended.strict)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", pretended.be_strict)
    regimes._side_stream.cache_clear()
    yield pretended
    regimes._side_stream.cache_clear()


class Takes:
    """A clock of steps that take so many milliseconds all together."""

    def __init__(self, ms=0.01):
        self.ms = ms

    def time(self, call, calls):
        call()
        return self.ms * calls


graphed = partial(in_a_graph, device="cuda", clock=Takes())


@pytest.mark.parametrize(("copies", "rounds"), [(1, 32), (3, 11), (32, 1), (40, 1)])
def test_a_graph_holds_every_copy_equally_often(cuda, copies, rounds):
    """https://github.com/flashinfer-ai/flashinfer/issues/4468: fewer calls than copies leave the caches warm."""
    ready = graphed(steps(cuda.log, copies))
    assert cuda.log[: 3 * copies] == list(range(copies)) * 3  # before capture
    assert ready.call.graph.steps == list(range(copies)) * rounds
    assert (ready.each, ready.turn) == (rounds * copies, 1)
    ready.call()
    ready.call()
    assert ready.call.graph.replays == 2


@pytest.mark.parametrize(("ms", "rounds"), [(50, 1), (5, 1), (2, 3), (0.01, 16), (0.0, 16), (math.nan, 16)])
def test_long_steps_make_a_short_graph(cuda, ms, rounds):
    assert graphed(steps(cuda.log, 2), clock=Takes(ms)).each == 2 * rounds


def test_a_flushed_graph_holds_one_step(cuda):
    assert graphed(steps(cuda.log, 1), True).each == 1


def test_steps_run_on_a_side_stream_before_and_while_captured(cuda):
    seen = []
    graphed([lambda: seen.append(cuda.streams[-1])])
    assert len(seen) == 3 + 32
    assert len(set(seen)) == 1
    assert isinstance(seen[0], Stream)
    assert seen[0] is not cuda.streams[0]


def test_all_graphs_of_a_device_are_captured_on_one_stream(cuda):
    """cuBLAS never gives back the workspace that it has for each stream."""
    for index in (0, 0, 1, 0):
        cuda.streams[0].device_index = index
        graphed(steps(cuda.log, 1))
    assert [stream.device_index for stream in cuda.made] == [0, 1]


def test_torchs_word_on_its_strict_mode_is_no_error(cuda):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graphed(steps(cuda.log, 1))
    assert (cuda.warned, cuda.strict) == (True, 0)


def test_a_graph_keeps_what_it_reads(cuda):
    """Its kernels hold addresses only: weights that nobody else holds must not go."""
    held = steps(cuda.log, 2)
    assert graphed(held).call.steps is held


def test_a_step_that_waits_for_the_device_is_refused_before_any_capture(cuda):
    """torch itself names the operation; in a capture it would break more than this lane."""
    calls, default = [], cuda.streams[0]

    def step():
        calls.append(cuda.strict)
        if cuda.strict:
            raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing") as raised:
        graphed([step])
    assert not isinstance(raised.value, CaptureLost)
    assert calls == [0, 0, 2]
    assert cuda.strict == 0
    assert cuda.streams[-1] is default


@pytest.mark.parametrize(
    ("error", "means"), [(RuntimeError("not permitted\nmore"), CaptureLost), (MemoryError(), MemoryError)]
)
def test_a_capture_that_fails_is_lost_and_leaves_the_stream(cuda, error, means):
    default = cuda.streams[0]
    left = iter(range(3))

    def step():
        if next(left, None) is None:
            raise error

    with pytest.raises(means) as raised:
        graphed([step])
    assert cuda.streams[-1] is default
    if means is CaptureLost:
        assert str(raised.value) == "no CUDA graph holds it: RuntimeError: not permitted"


class Readings:
    """A clock that shows how it was asked."""

    def __init__(self):
        self.asked = []

    def time(self, call, calls):
        self.asked.append(calls)
        return float(calls)


def test_flushing_times_single_calls_and_warms_up_without():
    clock, log = Readings(), []
    timed = Regime("host", clock, in_turn).timed(steps(log, 1), flush=partial(log.append, "flush"))
    assert timed.rehearsal is clock
    assert timed.clock.time(timed.call, 3) == 3.0
    assert clock.asked == [1, 1, 1]
    assert log == ["flush"] * 3
    assert timed.most == 10


@pytest.mark.parametrize(
    ("device", "regime", "cache", "notes"),
    [
        ("cpu", "host", "cold", ()),
        ("cuda", "throughput", "warm", ()),
        ("cuda:0", "throughput", "cold", ("launches hide behind the overwriting of the cache",)),
        ("cuda", "device", "cold", ()),
        ("mps", "latency", "warm", ("untested: nobody has yet checked what is measured on mps",)),
    ],
)
def test_what_a_reader_must_know(device, regime, cache, notes):
    assert regime_notes(device, regime, cache) == notes
