"""Modules while they are measured: copies of their weights in turn, emptied caches, and what a compiler makes."""

import pytest
import torch
from torch import nn

from explorer.blueprint.workload import Workload
from explorer.latency import arms as arms_module
from explorer.latency import measure as measure_module
from explorer.latency.arms import Candidate
from explorer.latency.runner import Feed, ready
from tests.latency.virtual import lane, run, track


class Square(nn.Module):
    """x @ w, and a sleep; its compiled form is the same."""

    def __init__(self, time, device, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(16, device=device, dtype=dtype))
        self.time = time
        self.log = []

    def forward(self, x, source=None):
        self.log.append(self.weight.data_ptr())
        self.time.sleep(4)
        return x @ self.weight

    def __deepcopy__(self, memo):
        twin = Square(self.time, self.weight.device, self.weight.dtype)
        twin.log = self.log
        return twin


def squares(time, key="square", workload=None):
    """A candidate, and the addresses of the weights that its calls used."""
    log = []

    def make(device, dtype):
        module = Square(time, device, dtype)
        module.log = log
        return module

    workload = (workload or Workload("prefill", tokens=4, dtype="float32")).settled()
    return Candidate(key, lambda: ready(make, workload, Feed(16), device="cpu")), log


def test_rotating_touches_every_copy_in_every_sample(time, effort):
    """1 KiB of weights, 4 times 2 KiB of cache: 8 copies, one after the other."""
    candidate, log = squares(time)
    ends = []

    def mark(progress):
        if progress.stage == "inspecting":
            ends.append(len(log))

    process = run([candidate], time, effort, cache="rotate", last_cache=2048, on_progress=mark)
    found = track(process, "square")
    assert (found.cache, found.copies, found.calls) == ("cold weights", 8, 8)
    assert found.times_ms == pytest.approx([4] * 20)
    samples = log[ends[0] - 9 * 20 : ends[0]]  # one untimed call before the 8 of a sample
    assert all(len(set(samples[at + 1 : at + 9])) == 8 for at in range(0, len(samples), 9))


def test_what_cannot_be_copied_stays_warm_and_says_so(time, effort):
    candidate, _ = squares(time)

    def build():
        step = candidate.build()
        step.module.hook = (one for one in ())  # a generator cannot be copied
        del Square.__deepcopy__
        return step

    deepcopy = Square.__deepcopy__
    try:
        process = run([Candidate("square", build)], time, effort, cache="rotate", last_cache=2048)
    finally:
        Square.__deepcopy__ = deepcopy
    found = track(process, "square")
    assert (found.cache, found.copies) == ("warm", 1)
    assert found.notes[0].startswith("warm: its weights cannot be copied: TypeError while copying")


def test_case_c10(time, effort, monkeypatch):
    """Public case C10: the flush takes 100 ms, the call 4; it is labelled, and not in the sample."""
    flushes = []
    monkeypatch.setattr(measure_module, "flusher", lambda device, size: lambda: flushes.append(time.sleep(100)))
    candidate, _ = squares(time)
    cold = track(run([candidate], time, effort, cache="flush", last_cache=2048), "square")
    warm = track(run([candidate], time, effort, cache="warm"), "square")
    assert (cold.cache, warm.cache) == ("cold", "warm")
    assert cold.times_ms == warm.times_ms == pytest.approx([4] * 20)
    assert len(flushes) == 20 * cold.calls


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_the_default_mode_rotates_for_decode_alone(time, effort, phase):
    decode = Workload("decode", context=4, dtype="float32")
    workload = decode if phase == "decode" else Workload(phase, tokens=4, dtype="float32")

    class Cached(Square):
        def make_cache(self, batch, capacity, dtype, device):
            from explorer.assembly.cache import Cache

            return Cache(0, batch=batch, capacity=capacity, dtype=dtype, device=device)

        def forward(self, x, source=None, cache=None):
            return super().forward(x)

        def __deepcopy__(self, memo):
            return Cached(self.time, self.weight.device, self.weight.dtype)

    def build():
        return ready(lambda device, dtype: Cached(time, device, dtype), workload.settled(), Feed(16), device="cpu")

    found = track(run([Candidate(phase, build)], time, effort, last_cache=2048), phase)
    assert found.cache == ("cold weights" if phase == "decode" else "warm")


class CompilesNothing:
    """The module itself, called compiled."""

    def __init__(self, module):
        self.call = module

    def of_copy(self, module):
        return module

    def compiles(self):
        return 1

    def facts(self):
        return {"compile_s": 1.5}


@pytest.fixture
def compiles_nothing(monkeypatch):
    eager = arms_module.implement

    def implement(module, impl):
        return eager(module, impl) if impl == "eager" else CompilesNothing(module)

    monkeypatch.setattr(arms_module, "implement", implement)


def test_implementations_are_lanes_of_the_same_rounds(time, effort, compiles_nothing):
    candidate, _ = squares(time)
    process = run([candidate], time, effort, impls=["eager", "compile"])
    assert [one.lane for one in process.tracks] == [lane("square"), lane("square", "compile")]
    facts = process.facts["square"]["compile"]
    assert (facts["compile_s"], facts["sdpa"]) == (1.5, ["none"])
    parity = facts["parity"]
    assert (parity["with"], parity["ok"], parity["error"], parity["reason"]) == ("eager", True, 0.0, None)
