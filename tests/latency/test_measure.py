"""Measuring candidates side by side: results, failures, memory, and what must not change meanwhile."""

import json
import random
import weakref

import pytest
import torch

from explorer.errors import RefusedError, UsageError
from explorer.latency import measure as measure_module
from explorer.latency.device import device_name
from explorer.latency.measure import Candidate, measure
from explorer.latency.protocol import Progress
from explorer.latency.timing import Failure, Timing

KEYS = [
    *("source", "device", "impl", "regime", "median_ms", "low_ms", "high_ms", "first_call_ms", "rounds"),
    *("verdict", "reason"),
]


def sleeping(key, time, *times_ms, least_bytes=0):
    return Candidate(key, lambda: time.sleeper(*times_ms), least_bytes)


def run(candidates, time, effort, **options):
    return measure(candidates, device="cpu", effort=effort, clock=time.clock(), **options)


def test_a_timing_has_the_keys_of_the_json(time, effort):
    entry = run([sleeping("a", time, 200, 5)], time, effort)["a"].to_dict()
    assert list(entry)[: len(KEYS)] == KEYS
    assert json.loads(json.dumps(entry)) == entry
    assert [entry[key] for key in ("median_ms", "low_ms", "high_ms", "first_call_ms")] == pytest.approx([5, 5, 5, 200])
    assert {key: entry[key] for key in ("source", "impl", "regime", "rounds", "verdict", "reason", "steady")} == {
        "source": "measured",
        "impl": "eager",
        "regime": "host",
        "rounds": 20,
        "verdict": None,
        "reason": None,
        "steady": True,
    }
    assert entry["device"] == device_name("cpu")
    assert 7 <= entry["warmup"] <= 8  # 200 ms, then 5 ms until 30 ms have passed


def test_a_failure_has_the_same_keys_and_no_numbers():
    entry = Failure("out of memory while building", device="NVIDIA H200").to_dict()
    assert list(entry)[: len(KEYS)] == KEYS
    filled = {key: value for key, value in entry.items() if value is not None}
    assert filled == {
        "source": "measured",
        "device": "NVIDIA H200",
        "impl": "eager",
        "reason": "out of memory while building",
    }


def test_drift_is_flagged(time, effort):
    """Public case C4 where the warm-up ends too early: the number carries the warning."""
    timing = run([sleeping("a", time, *[12] * 10, 4)], time, effort)["a"]
    assert timing.warmup < 10
    assert not timing.steady


def test_results_keep_the_order_and_the_others_go_on(time, effort):
    def refuse():
        raise RefusedError("dim 96 must divide by heads 10")

    candidates = [sleeping("b", time, 3), Candidate("refused", refuse), sleeping("a", time, 4)]
    result = run(candidates, time, effort)
    assert list(result) == ["b", "refused", "a"]
    assert result["refused"].reason == "dim 96 must divide by heads 10"
    assert result["refused"].device == device_name("cpu")
    assert [result[key].median_ms for key in "ba"] == pytest.approx([3, 4])
    assert {result[key].together for key in "ba"} == {2}


@pytest.mark.parametrize("threads", [1, 2])
def test_the_thread_count_is_told_and_kept(time, effort, threads):
    """Public case C7."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert run([sleeping("a", time, 3)], time, effort)["a"].threads == threads
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_a_candidate_that_disturbs_leaves_no_trace(time, effort):
    def disturb():
        time.sleep(3)
        torch.rand(1)
        torch.set_num_threads(threads + 1)
        torch.set_grad_enabled(False)

    random_state, threads, python_state = torch.get_rng_state(), torch.get_num_threads(), random.getstate()
    run([Candidate("a", lambda: disturb)], time, effort)
    torch.testing.assert_close(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert random.getstate() == python_state


class Memory:
    """A device with room for so many bytes; a block keeps its own until it is let go."""

    def __init__(self, size):
        self.size = size
        self.held = []

    def free(self, device=None):
        alive = [block for block in (ref() for ref in self.held) if block is not None]
        return self.size - sum(block.size for block in alive)

    def candidate(self, key, size, time, *, running=0, told=False):
        def build():
            block = Block(self, size, running, time)
            self.held.append(weakref.ref(block))
            return block

        return Candidate(key, build, least_bytes=size if told else 0)


class Block:
    def __init__(self, memory, size, running, time):
        if size > memory.free():
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self.memory, self.size, self.running, self.time = memory, size, running, time

    def __call__(self):
        if self.running > self.memory.free():
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {self.running} bytes.")
        self.time.sleep(5)


def outcome(result):
    return {key: one.together if isinstance(one, Timing) else "out of memory" for key, one in result.items()}


def test_what_does_not_fit_beside_the_others_is_measured_alone(time, effort):
    memory = Memory(10)
    sizes = {"a": 4, "b": 4, "crowded": 4, "too large": 12}
    result = run([memory.candidate(key, size, time) for key, size in sizes.items()], time, effort)
    assert outcome(result) == {"a": 2, "b": 2, "crowded": 1, "too large": "out of memory"}
    assert result["too large"].out_of_memory
    assert memory.free() == 10


def test_memory_for_running_counts_too(time, effort):
    memory = Memory(10)
    candidates = [
        memory.candidate("a", 2, time),
        memory.candidate("crowded", 2, time, running=8),
        memory.candidate("never", 2, time, running=9),
    ]
    assert outcome(run(candidates, time, effort)) == {"a": 1, "crowded": 1, "never": "out of memory"}


def test_the_order_does_not_decide_who_runs_out_of_memory(time, effort):
    memory = Memory(10)
    candidates = [memory.candidate("a", 2, time, running=6), memory.candidate("never", 5, time, running=6)]
    assert outcome(run(list(reversed(candidates)), time, effort)) == {"never": "out of memory", "a": 1}
    assert outcome(run(candidates, time, effort)) == {"a": 1, "never": "out of memory"}


def test_known_bytes_spare_the_attempt(time, effort, monkeypatch):
    memory = Memory(10)
    monkeypatch.setattr(measure_module, "free_bytes", memory.free)
    tries = {"a": 4, "b": 4, "alone": 9, "too large": 12}
    candidates = [memory.candidate(key, size, time, told=True) for key, size in tries.items()]
    result = run(candidates, time, effort)
    assert outcome(result) == {"a": 2, "b": 2, "alone": 1, "too large": "out of memory"}
    assert "needed" in result["too large"].reason
    assert len(memory.held) == 3


def test_progress_counts_every_stage(time, effort):
    seen = []
    run([sleeping("a", time, 3), sleeping("b", time, 3)], time, effort, on_progress=seen.append)
    expected = [("building", 2), ("warming up", 2), ("measuring", 20)]
    assert seen == [Progress(stage, done, total) for stage, total in expected for done in range(total)]


def test_keys_are_unique(time, effort):
    with pytest.raises(UsageError, match="more than one is called a"):
        run([sleeping("a", time, 3), sleeping("a", time, 3)], time, effort)


def test_an_unknown_effort_lists_the_known():
    with pytest.raises(
        UsageError, match=r"'quik' is unknown; it is one of: quick, default, publish; did you mean 'quick'\?"
    ):
        measure([], device="cpu", effort="quik")


def test_a_real_call_on_the_real_clock():
    """No time is asserted: only that the default clock and the quick effort give a whole result."""
    x = torch.ones(8, 8)
    timing = measure([Candidate("square", lambda: lambda: x @ x)], device="cpu", effort="quick")["square"]
    assert isinstance(timing, Timing)
    assert 0 < timing.low_ms <= timing.median_ms <= timing.high_ms
    assert (timing.rounds, timing.dropped, timing.threads) == (10, 0, torch.get_num_threads())
