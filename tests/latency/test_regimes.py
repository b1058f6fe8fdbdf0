"""How a regime calls the steps of several copies; CUDA graphs on a pretended CUDA."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch

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
        self.generator = Generator()

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


class Stream:
    device_index = 0

    def __init__(self, device=None):
        self.waits = []

    def wait_stream(self, other):
        self.waits.append(other)


class Generator:
    state = None

    def graphsafe_set_state(self, state):
        self.state = state


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
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "device", lambda device: pretended.stream("device"))
    monkeypatch.setattr(torch.cuda, "stream", pretended.stream)
    monkeypatch.setattr(torch.cuda, "graph", pretended.graph)
    monkeypatch.setattr(torch.cuda, "default_generators", [pretended.generator])
    return pretended


@pytest.mark.parametrize(("copies", "rounds"), [(1, 32), (3, 11), (32, 1), (40, 1)])
def test_a_graph_holds_every_copy_equally_often(cuda, copies, rounds):
    """https://github.com/flashinfer-ai/flashinfer/issues/4468: fewer calls than copies leave the caches warm."""
    ready = in_a_graph(steps(cuda.log, copies), device="cuda")
    assert cuda.log[: 3 * copies] == list(range(copies)) * 3  # before capture
    assert ready.call.graph.steps == list(range(copies)) * rounds
    assert (ready.each, ready.turn) == (rounds * copies, 1)
    ready.call()
    ready.call()
    assert ready.call.graph.replays == 2


def test_a_flushed_graph_holds_one_step(cuda):
    assert in_a_graph(steps(cuda.log, 1), True, device="cuda").each == 1


def test_steps_run_on_a_side_stream_before_and_while_captured(cuda):
    seen = []
    in_a_graph([lambda: seen.append(cuda.streams[-1])], device="cuda")
    assert len(seen) == 3 + 32
    assert len(set(seen)) == 1
    assert isinstance(seen[0], Stream)
    assert seen[0] is not cuda.streams[0]


def test_a_graph_keeps_what_it_reads(cuda):
    """Its kernels hold addresses only: weights that nobody else holds must not go."""
    held = steps(cuda.log, 2)
    assert in_a_graph(held, device="cuda").call.steps is held


def test_a_step_that_cannot_be_captured_raises_and_leaves_no_capture_behind(cuda):
    default = cuda.streams[0]
    left = iter(range(3))

    def step():
        if next(left, None) is None:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        in_a_graph([step], device="cpu")
    assert cuda.streams[-1] is default
    assert isinstance(cuda.generator.state, torch.Generator)


def test_a_capture_leaves_the_random_state_alone(cuda):
    in_a_graph(steps(cuda.log, 1), device="cuda")
    assert cuda.generator.state is None


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
