"""Warm-up and interleaved rounds in virtual time: public cases C2, C4, C5; failures; order; budget."""

import random
from dataclasses import replace
from functools import partial

import pytest
import torch

from explorer.latency.effort import EFFORTS
from explorer.latency.protocol import Samples, calls_for, interleave, warm_up
from explorer.latency.timing import Failure


def run(calls, time, effort, seed=0):
    return interleave(dict(calls), time.clock(), effort, random.Random(seed), lambda progress: None)


def test_the_first_call_stands_apart(time, effort):
    """Public case C2: 200 ms, then 5."""
    samples = run({"a": time.sleeper(200, 5)}, time, effort)["a"]
    assert samples.times_ms == pytest.approx([5] * 20)
    assert samples.warm.first_call_ms == pytest.approx(200)


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
def test_ten_slow_calls_are_warmed_away(time, effort):
    """Public case C4: 12 ms for the first ten calls, then 4; with every effort that a user can choose."""
    samples = run({"a": time.sleeper(*[12] * 10, 4)}, time, effort)["a"]
    assert samples.times_ms == pytest.approx([4] * effort.rounds)
    assert samples.warm.warmup > 10


def test_every_shape_warms_up(time, effort):
    """Public case C5: 50 ms the first time a plugin sees a shape, 4 ms after."""
    seen = set()

    def plugin(x):
        time.sleep(4 if x.shape in seen else 50)
        seen.add(x.shape)

    calls = {tokens: partial(plugin, torch.zeros(1, tokens, 8)) for tokens in (4, 8, 16)}
    for samples in run(calls, time, effort).values():
        assert samples.times_ms == pytest.approx([4] * 20)
        assert samples.warm.first_call_ms == pytest.approx(50)


def test_warming_up_goes_on_until_three_readings_agree(time, effort):
    warm = warm_up(time.sleeper(90, *range(80, 40, -10), 40), time.clock(), effort)
    assert warm.warmup == 8  # 90, 80, 70, 60, 50, and 40 three times


def test_warming_up_has_a_limit(time, effort):
    never_steady = time.sleeper(*[10, 20] * 1000)
    warm = warm_up(never_steady, time.clock(), replace(effort, warm_limit_ms=100))
    assert warm.warmup == 8  # the first call, then 20 + 10 + 20 + 10 + 20 + 10 + 20 ms reach the limit


@pytest.mark.parametrize(
    ("call_ms", "calls"), [(40.0, 1), (20.0, 1), (6.0, 4), (0.5, 40), (1e-9, 100_000), (0.0, 1), (float("nan"), 1)]
)
def test_calls_fill_a_sample(call_ms, calls):
    assert calls_for(call_ms, sample_ms=20) == calls


def test_short_calls_are_measured_many_at_a_time_after_one_untimed(time, effort):
    calls = []

    def call():
        calls.append(time.sleep(2))

    samples = run({"a": call}, time, replace(effort, sample_ms=20, rounds=3))["a"]
    assert samples.warm.calls == 10
    assert samples.times_ms == pytest.approx([2] * 3)
    assert len(calls) - samples.warm.warmup == 3 * (10 + 1)


def test_a_long_call_has_no_untimed_one_before_it(time, effort):
    calls = []
    samples = run({"a": lambda: calls.append(time.sleep(2))}, time, replace(effort, rounds=3))["a"]
    assert len(calls) - samples.warm.warmup == 3


def order(time, effort, seed):
    """Which candidate ran when, in rounds."""
    log = []
    calls = {name: lambda name=name: log.append((name, time.sleep(10))) for name in "abcd"}
    run(calls, time, effort, seed)
    names = [name for name, _ in log][-4 * effort.rounds :]
    return ["".join(names[i : i + 4]) for i in range(0, len(names), 4)]


def test_every_candidate_runs_once_a_round_in_random_order(time, effort):
    rounds = order(time, effort, seed=0)
    assert all(sorted(names) == list("abcd") for names in rounds)
    assert len(set(rounds)) > 5
    assert rounds == order(time, effort, seed=0)
    assert rounds != order(time, effort, seed=1)


def test_drift_hits_all_alike(time, effort):
    """The machine slows down by half over the rounds: every candidate sees it, the ratio stays."""

    def call(ms):
        return lambda: time.sleep(ms * (1 + 0.5 * time.seconds))

    result = run({"a": call(1), "b": call(2)}, time, replace(effort, rounds=200, warm_limit_ms=50))
    medians = {key: sorted(samples.times_ms)[100] for key, samples in result.items()}
    assert medians["b"] / medians["a"] == pytest.approx(2, rel=0.02)


ERRORS = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True, "out of memory while"),
    (MemoryError(), True, "out of memory while"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True, "out of memory"),
    (ValueError("odd\nsecond line"), False, "ValueError while"),
]


def raises(error):
    raise error


@pytest.mark.parametrize(("error", "out_of_memory", "reason"), ERRORS)
def test_one_failure_leaves_the_others(time, effort, error, out_of_memory, reason):
    calls = {"a": time.sleeper(3), "broken": lambda: raises(error), "b": time.sleeper(4)}
    result = run(calls, time, effort)
    assert isinstance(result["broken"], Failure)
    assert result["broken"].out_of_memory is out_of_memory
    assert result["broken"].reason.startswith(reason)
    assert "second line" not in result["broken"].reason
    assert [result[key].times_ms for key in "ab"] == [pytest.approx([ms] * 20) for ms in (3, 4)]


def test_a_failure_in_the_rounds_leaves_the_others(time, effort):
    left = iter(range(20))

    def breaks_later():
        time.sleep(5)
        if next(left, None) is None:
            raise ValueError("no more")

    result = run({"a": time.sleeper(3), "b": breaks_later}, time, effort)
    assert result["b"].reason == "ValueError while measuring: no more"
    assert "breaks_later" in result["b"].details
    assert len(result["a"].times_ms) == 20


def test_a_failed_candidate_is_let_go(time, effort):
    calls = {"a": time.sleeper(3), "broken": lambda: raises(MemoryError())}
    interleave(calls, time.clock(), effort, random.Random(0), lambda progress: None)
    assert list(calls) == ["a"]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(time, effort, interrupt):
    with pytest.raises(interrupt):
        run({"a": lambda: raises(interrupt())}, time, effort)


def test_rounds_end_with_the_budget_but_not_too_early(time, effort):
    calls = {"a": time.sleeper(100), "b": time.sleeper(300)}
    cut = replace(effort, rounds=50, fewest_rounds=5, budget_ms=1_999)
    assert {len(s.times_ms) for s in run(calls, time, cut).values()} == {10}  # 10 rounds of 400 ms
    assert {len(s.times_ms) for s in run(calls, time, replace(cut, budget_ms=1)).values()} == {5}


def test_a_clock_that_stands_still_ends_too(time, effort):
    samples = run({"a": lambda: None}, time, effort)["a"]
    assert isinstance(samples, Samples)
    assert set(samples.times_ms) == {0.0}


def test_no_candidates_no_rounds(time, effort):
    assert run({}, time, effort) == {}
