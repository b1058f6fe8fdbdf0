"""Measuring candidates side by side: tracks, failures, memory, and what must not change meanwhile."""

import json
import random
import weakref
from dataclasses import replace

import pytest
import torch

from explorer.errors import RefusedError, UsageError
from explorer.latency import arms as arms_module
from explorer.latency.arms import Candidate
from explorer.latency.facts import not_looked_at
from explorer.latency.measure import measure
from explorer.latency.protocol import Progress
from explorer.latency.raw import Process
from explorer.latency.regimes import Prepared, Regime
from explorer.latency.timing import timing
from tests.latency.virtual import ScriptedGuard, bare, lane, run, track


def test_a_track_has_every_round_and_the_first_call_apart(time, effort):
    """Public case C2: 200 ms, then 5."""
    found = track(run([time.candidate("a", 200, 5)], time, effort), "a")
    assert found.times_ms == pytest.approx([5] * 20)
    assert found.first_call_ms == pytest.approx(200)
    assert 7 <= found.warmup <= 8  # the first call, and 5 ms until 30 ms have passed
    assert (found.calls, found.copies, found.cache, found.notes) == (1, 1, "warm", ())


def test_every_shape_has_a_first_call(time, effort):
    """Public case C5: 50 ms the first time a plugin sees a shape, 4 ms after."""
    seen = set()

    def plugin(tokens):
        time.sleep(4 if tokens in seen else 50)
        seen.add(tokens)

    candidates = [bare(f"T={tokens}", lambda tokens=tokens: lambda: plugin(tokens)) for tokens in (4, 8, 16)]
    process = run(candidates, time, effort)
    assert [one.first_call_ms for one in process.tracks] == pytest.approx([50] * 3)
    assert all(one.times_ms == pytest.approx([4] * 20) for one in process.tracks)


def test_a_record_survives_json(time, effort):
    def refuse():
        raise RefusedError("dim 96 must divide by heads 10")

    process = run([time.candidate("a", 3), Candidate("refused", refuse)], time, effort, guard=ScriptedGuard("a burst"))
    assert process.disturbed[:2] == ("a burst", None)
    assert Process.from_dict(json.loads(json.dumps(process.to_dict()))) == process


def test_times_are_told_before_facts_are_looked_for(time, effort):
    """Looking for facts may end the process: what was timed must be in other hands by then."""
    told = []
    listeners = {
        "on_progress": lambda progress: told.append(progress.stage),
        "on_timed": told.append,
        "on_facts": lambda key, facts: told.append((key, facts)),
    }
    process = run([time.candidate("a", 3)], time, effort, **listeners)
    assert told[told.index("inspecting") - 1] == replace(process, facts={})
    assert told[-1] == ("a", process.facts["a"])


def test_facts_are_not_looked_for_where_that_would_end_the_process(time, effort):
    process = run([time.candidate("a", 3), time.candidate("b", 3)], time, effort, uninspected=["a"])
    assert [one.lane.candidate for one in process.tracks] == ["a", "b"]
    told = "not looked for: looking for facts of it ended an earlier process"
    assert process.facts["a"] == {"eager": not_looked_at("eager", told)}
    assert process.facts["b"]["eager"]["sdpa_note"] != told


def test_the_surroundings_are_part_of_the_record(time, effort):
    process = run([time.candidate("a", 3)], time, effort)
    assert process.guard == "a script"
    assert process.environment["torch"] == torch.__version__
    assert set(process.environment["clocks"]) == {"before", "after"}


def test_tracks_keep_the_order_and_the_others_go_on(time, effort):
    def refuse():
        raise RefusedError("dim 96 must divide by heads 10")

    candidates = [time.candidate("b", 3), Candidate("refused", refuse), time.candidate("a", 4)]
    process = run(candidates, time, effort)
    assert [one.lane.candidate for one in process.tracks] == ["b", "a"]
    (failed,) = process.failed
    assert (failed.candidate, failed.impl, failed.reason) == ("refused", None, "dim 96 must divide by heads 10")
    assert [track(process, key).times_ms[0] for key in "ba"] == pytest.approx([3, 4])


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), ValueError("odd")])
@pytest.mark.parametrize("calls", [0, 1, 4, 20])
def test_whenever_a_candidate_fails_the_others_go_on(time, effort, error, calls):
    """In its first call, while it warms up, in the rounds."""
    left = iter(range(calls))

    def call():
        time.sleep(5)
        if next(left, None) is None:
            raise error

    process = run([time.candidate("a", 3), bare("broken", lambda: call), time.candidate("b", 4)], time, effort)
    (failed,) = process.failed
    assert (failed.candidate, failed.impl) == ("broken", "eager")
    assert failed.out_of_memory is not isinstance(error, ValueError)
    assert [one.times_ms[0] for one in process.tracks] == pytest.approx([3, 4])
    assert {len(one.times_ms) for one in process.tracks} == {20}


def refuses(steps, single):
    raise RuntimeError("operation not permitted when stream is capturing")


def test_a_regime_that_cannot_be_had_costs_only_itself(time, effort):
    regimes = [*time.regimes(), Regime("device", time.clock(), refuses)]
    process = run([time.candidate("a", 3)], time, effort, regimes=regimes)
    assert [one.lane for one in process.tracks] == [lane("a")]
    (failed,) = process.failed
    assert (failed.candidate, failed.impl, failed.regime) == ("a", "eager", "device")
    assert failed.reason == "RuntimeError while warming up: operation not permitted when stream is capturing"


def eight_at_once(steps, single):
    return Prepared(lambda: [step() for step in steps * 8], each=8 * len(steps), turn=1)


def test_regimes_are_lanes_of_the_same_rounds(time, effort):
    regimes = [*time.regimes(), Regime("device", time.clock(), eight_at_once)]
    process = run([time.candidate("a", 3), time.candidate("b", 4)], time, effort, regimes=regimes)
    assert [(one.lane.candidate, one.lane.regime) for one in process.tracks] == [
        ("a", "host"),
        ("a", "device"),
        ("b", "host"),
        ("b", "device"),
    ]
    assert track(process, "b", regime="device").times_ms == pytest.approx([4] * 20)
    assert track(process, "b", regime="device").calls == 8


def test_a_function_is_not_compiled(time, effort):
    process = run([time.candidate("a", 3)], time, effort, impls=["eager", "compile"])
    assert [one.lane.impl for one in process.tracks] == ["eager"]
    assert process.failed[0].reason == "not measured with compile: it is a function and no module"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_thread_count_is_told_and_kept(time, effort, threads):
    """Public case C7."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        process = run([time.candidate("a", 3)], time, effort)
        assert process.environment["threads"] == timing([process], lane("a")).threads == threads
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
    process = run([bare("a", lambda: disturb)], time, effort)
    assert process.environment["threads"] == threads
    torch.testing.assert_close(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert random.getstate() == python_state


def test_candidates_are_built_in_an_order_drawn_from_the_seed(time, effort):
    def order(seed):
        built = []
        candidates = [bare(key, lambda key=key: built.append(key) or time.sleeper(3)) for key in "abcdef"]
        run(candidates, time, effort, seed=seed)
        return "".join(built)

    assert order(0) == order(0) != order(1)


def test_what_cannot_fit_is_not_tried(time, effort, monkeypatch):
    monkeypatch.setattr(arms_module, "free_bytes", lambda device: 2**30)
    tried = []
    process = run([bare("large", lambda: tried.append(1), least_bytes=3 * 2**30)], time, effort)
    (failed,) = process.failed
    assert failed.out_of_memory
    assert failed.reason == "out of memory while building: at least 3.0 GiB needed, 1.0 GiB free on cpu"
    assert not tried


class Block:
    """Something that must be let go."""

    def __init__(self, time, fails):
        self.time, self.fails = time, fails

    def __call__(self):
        self.time.sleep(5)
        if self.fails:
            raise MemoryError


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_keeps_a_candidate_after_it(time, effort, fails):
    held = []

    def make():
        block = Block(time, fails)
        held.append(weakref.ref(block))
        return block

    process = run([bare("a", make)], time, effort)
    assert bool(process.failed) is fails
    assert held[0]() is None


def test_memory_of_a_failed_candidate_is_there_for_the_next(time, effort):
    """It fails in its first call; the other one, warmed up later, must find it gone."""
    held, alive = [], []

    def make():
        block = Block(time, True)
        held.append(weakref.ref(block))
        return block

    def other():
        time.sleep(3)
        alive.append(any(ref() for ref in held))

    run([bare("a", make), bare("b", lambda: other)], time, effort)
    assert held
    assert not alive[-1]


def test_progress_names_the_candidate_at_every_step(time, effort):
    seen = []
    run([time.candidate("a", 3), time.candidate("b", 3)], time, effort, on_progress=seen.append)
    stages = [one.stage for one in seen]
    assert list(dict.fromkeys(stages)) == ["building", "warming up", "measuring", "inspecting"]
    assert [stages.count(stage) for stage in dict.fromkeys(stages)] == [2, 2, 40, 2]
    assert {one.candidate for one in seen} == {"a", "b"}
    last = [one for one in seen if one.stage == "measuring"][-1]
    assert last == Progress("measuring", 19, 20, last.candidate, "eager", "host")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": "quik"}, r"effort 'quik' is unknown; .* quick, default, publish; did you mean 'quick'\?"),
        ({"cache": "hot"}, "cache mode 'hot' is unknown; it is one of: auto, warm, rotate, flush"),
        ({"impls": ["eagre"]}, r"'eagre' is unknown; it is one of: eager, compile; did you mean 'eager'\?"),
    ],
)
def test_an_unknown_word_lists_the_known(options, message):
    with pytest.raises(UsageError, match=message):
        measure([], device="cpu", **options)


def test_keys_are_unique(time, effort):
    with pytest.raises(UsageError, match="more than one is called a"):
        run([time.candidate("a", 3), time.candidate("a", 3)], time, effort)


def test_a_real_call_on_the_real_clock():
    """No time is asserted: only that the default clock, guard and effort give a whole result."""
    x = torch.ones(8, 8)
    process = measure([bare("square", lambda: lambda: x @ x)], device="cpu", effort="quick")
    assert 10 <= len(process.disturbed) <= 20
    found = timing([process], lane("square"))
    assert 0 < found.low_ms <= found.median_ms <= found.high_ms
    assert (found.dropped, found.threads) == (0, torch.get_num_threads())
