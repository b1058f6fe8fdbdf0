"""Warm-up and interleaved rounds in virtual time: public cases C2, C4, C5; guards; failures; order; budget."""

import math
import random
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch

from explorer.latency.effort import EFFORTS
from explorer.latency.guard import HostAndDevice
from explorer.latency.measure import measure
from explorer.latency.protocol import Timed, calls_for, interleave, warm_up
from explorer.latency.raw import Lane
from tests.latency.virtual import ScriptedGuard, bare


def lane(key):
    return Lane(key, "eager", "host")


def run(calls, time, effort, seed=0, guard=None, **options):
    """Rounds of these calls, all warmed up."""
    lanes = {lane(key): warm_up(Timed(call, time.clock()), effort) for key, call in calls.items()}
    return interleave(lanes, effort, random.Random(seed), guard or ScriptedGuard(), lambda progress: None, **options)


def times_of(calls, time, effort):
    rounds = run(calls, time, effort)
    return {key: rounds.times_ms[lane(key)] for key in calls}


def warmed(call, time, effort):
    return warm_up(Timed(call, time.clock()), effort)


def test_the_first_call_is_in_no_sample(time, effort):
    """Public case C2: 200 ms, then 5."""
    assert times_of({"a": time.sleeper(200, 5)}, time, effort)["a"] == pytest.approx([5] * 20)


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
def test_ten_slow_calls_are_warmed_away(time, effort):
    """Public case C4: 12 ms for the first ten calls, then 4; with every effort that a user can choose."""
    call = time.sleeper(*[12] * 10, 4)
    warm = warmed(call, time, effort)
    assert warm.warmup > 10
    assert times_of({"a": call}, time, effort)["a"] == pytest.approx([4] * effort.rounds)


def test_every_shape_warms_up(time, effort):
    """Public case C5: 50 ms the first time a plugin sees a shape, 4 ms after."""
    seen = set()

    def plugin(x):
        time.sleep(4 if x.shape in seen else 50)
        seen.add(x.shape)

    calls = {tokens: partial(plugin, torch.zeros(1, tokens, 8)) for tokens in (4, 8, 16)}
    for times in times_of(calls, time, effort).values():
        assert times == pytest.approx([4] * 20)


def test_warming_up_goes_on_until_three_readings_agree(time, effort):
    warm = warmed(time.sleeper(90, *range(80, 40, -10), 40), time, effort)
    assert warm.warmup == 8  # 90, 80, 70, 60, 50, and 40 three times


def test_warming_up_has_a_limit(time, effort):
    never_steady = time.sleeper(*[10, 20] * 1000)
    warm = warmed(never_steady, time, replace(effort, warm_limit_ms=100))
    assert warm.warmup == 8  # the first call, then 20 + 10 + 20 + 10 + 20 + 10 + 20 ms reach the limit


@pytest.mark.parametrize(
    ("call_ms", "turn", "most", "calls"),
    [
        (40.0, 1, 100, 1),
        (20.0, 1, 100, 1),
        (6.0, 1, 100, 4),
        (0.5, 1, 100, 40),
        (0.5, 1, 10, 10),
        (1e-9, 1, 100_000, 100_000),
        (0.0, 1, 100, 1),
        (math.nan, 1, 100, 1),
        (6.0, 3, 100, 6),  # whole turns of three copies
        (40.0, 3, 100, 3),
        (math.nan, 3, 100, 3),
    ],
)
def test_calls_fill_a_sample_in_whole_turns(call_ms, turn, most, calls):
    timed = Timed(lambda: None, None, turn=turn, most=most)
    assert calls_for(call_ms, sample_ms=20, timed=timed) == calls


def test_short_calls_are_measured_many_at_a_time_after_one_untimed(time, effort):
    calls = []

    def call():
        calls.append(time.sleep(2))

    effort = replace(effort, sample_ms=20, rounds=3)
    lanes = {lane("a"): warmed(call, time, effort)}
    assert lanes[lane("a")].calls == 10
    calls.clear()
    rounds = interleave(lanes, effort, random.Random(0), ScriptedGuard(), lambda progress: None)
    assert rounds.times_ms[lane("a")] == pytest.approx([2] * 3)
    assert len(calls) == 3 * (10 + 1)


def test_a_long_call_has_no_untimed_one_before_it(time, effort):
    warm = warmed(time.sleeper(2), time, effort)
    assert (warm.calls, warm.lead) == (1, False)


def test_a_call_of_many_steps_counts_them(time, effort):
    """A graph of 8 steps that takes 16 ms: 2 ms a step."""
    graph = Timed(time.sleeper(16), time.clock(), each=8)
    lanes = {lane("a"): warm_up(graph, effort)}
    rounds = interleave(lanes, effort, random.Random(0), ScriptedGuard(), lambda progress: None)
    assert rounds.times_ms[lane("a")] == pytest.approx([2] * 20)


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

    result = times_of(
        {"a": call(1), "b": call(2)}, time, replace(effort, rounds=200, most_rounds=200, warm_limit_ms=50)
    )
    medians = {key: sorted(times)[100] for key, times in result.items()}
    assert medians["b"] / medians["a"] == pytest.approx(2, rel=0.02)


def test_disturbed_rounds_are_kept_with_the_reason_and_made_up_for(time, effort):
    guard = ScriptedGuard(None, "another process", None, "another process")
    rounds = run({"a": time.sleeper(5)}, time, replace(effort, rounds=5, fewest_rounds=5), guard=guard)
    seen = (None, "another process", None, "another process", None, None, None)
    assert rounds.rounds == rounds.disturbed[lane("a")] == seen
    assert len(rounds.times_ms[lane("a")]) == 7


def test_a_burst_spoils_the_sample_that_it_meets_and_no_other(time, effort):
    """Of three lanes one is disturbed in each round; each has its clean samples, though no round is clean."""
    guard = ScriptedGuard(*[None, "a burst", None] * 6)
    rounds = run({key: time.sleeper(5) for key in "abc"}, time, replace(effort, rounds=3), seed=3, guard=guard)
    rng = random.Random(3)
    second = [rng.sample("abc", 3)[1] for _ in range(5)]
    assert second == ["c", "b", "a", "a", "b"]  # in the last of them a has its third clean sample
    for key in "abc":
        assert rounds.disturbed[lane(key)] == tuple("a burst" if key == hit else None for hit in second)
    assert rounds.rounds == ("a burst",) * 5


def test_rounds_go_on_until_every_lane_has_its_clean_samples(time, effort):
    """The lane that came second in the first round was disturbed in it."""
    guard = ScriptedGuard(None, "a burst")
    rounds = run({"a": time.sleeper(5), "b": time.sleeper(5)}, time, effort, guard=guard)
    assert rounds.rounds == ("a burst", *[None] * 20)
    assert sorted(reasons.count(None) for reasons in rounds.disturbed.values()) == [20, 21]


class OfEachRound:
    """A guard that says of each sample what it is told of its call and round."""

    name = "of each round"

    def __init__(self, hits):
        self.hits = hits
        self.rounds = {key: count() for key in hits}

    def call(self, key, time):
        def called():
            self.key = key
            time.sleep(5)

        return called

    def start(self):
        """What is called next says which it is."""

    def stop(self):
        return "a burst" if next(self.rounds[self.key]) in self.hits[self.key] else None


@pytest.mark.parametrize(
    ("baselines", "rounds"),
    [
        ({"a": None, "b": "a"}, 18),
        ({"a": None, "b": "gone"}, 14),
        ({}, 14),  # not compared: each has 10 of its own
    ],
)
def test_rounds_go_on_until_two_that_are_compared_were_both_clean_in_enough(time, baselines, rounds):
    guard = OfEachRound({"a": range(4), "b": range(4, 8), "c": ()})
    calls = {key: guard.call(key, time) for key in "abc"}
    found = run(calls, time, EFFORTS["quick"], guard=guard, baselines=baselines)
    assert len(found.rounds) == rounds
    clean = [pair.count(None) for pair in found.disturbed.values()]
    assert clean == [rounds - 4, rounds - 4, rounds]


def test_measuring_is_told_what_is_compared(time):
    guard = OfEachRound({"a": range(4), "b": range(4, 8)})
    candidates = [bare(key, lambda key=key: guard.call(key, time)) for key in "ab"]
    found = measure(candidates, device="cpu", effort="quick", baselines={"b": "a"}, regimes=time.regimes(), guard=guard)
    assert len(found.disturbed) == 18


def test_implementations_are_compared_with_each_other(time):
    guard = OfEachRound({"a": range(4), "b": range(4, 8)})
    lanes = {
        Lane("one", impl, "host"): warm_up(Timed(guard.call(key, time), time.clock()), EFFORTS["quick"])
        for key, impl in (("a", "eager"), ("b", "compile"))
    }
    found = interleave(lanes, EFFORTS["quick"], random.Random(0), guard, lambda progress: None)
    assert len(found.rounds) == 18


def test_what_failed_holds_nobody_up(time, effort):
    """The baseline is never clean, and breaks in the third round."""
    guard = OfEachRound({"a": range(40), "b": ()})
    never_clean, left = guard.call("a", time), iter(range(9))  # 7 of them to warm up

    def breaks():
        never_clean()
        if next(left, None) is None:
            raise ValueError("broken")

    found = run({"a": breaks, "b": guard.call("b", time)}, time, effort, guard=guard, baselines={"b": "a"})
    assert found.failed[lane("a")].reason == "ValueError while measuring: broken"
    assert found.rounds == (*["a burst"] * 3, *[None] * 17)


@pytest.mark.parametrize("seen", [None, "a hot device"])
def test_the_host_does_not_matter_where_the_device_is_timed_alone(time, effort, seen):
    guard = HostAndDevice(ScriptedGuard(*["a busy host"] * 4), ScriptedGuard(*[seen] * 8))
    warm = warmed(time.sleeper(5), time, effort)
    lanes = {Lane("a", "eager", regime): warm for regime in ("device", "latency")}
    found = interleave(lanes, replace(effort, rounds=2, most_rounds=4), random.Random(0), guard, lambda progress: None)
    assert {one.regime: told for one, told in found.disturbed.items()} == {
        "device": (seen,) * 4,
        "latency": ("a busy host",) * 4,
    }


def test_a_sample_in_which_it_is_compiled_again_is_dropped(time, effort):
    compiles = iter([1, 1, 1, 2, *[2] * 100])
    timed = Timed(time.sleeper(5), time.clock(), compiles=lambda: next(compiles))
    lanes = {lane("a"): warm_up(timed, effort)}
    rounds = interleave(lanes, effort, random.Random(0), ScriptedGuard(), lambda progress: None)
    assert rounds.times_ms[lane("a")] == (pytest.approx(5), None, *[pytest.approx(5)] * 18)


def test_most_rounds_are_enough_however_disturbed(time, effort):
    guard = ScriptedGuard(*["another process"] * 100)
    rounds = run({"a": time.sleeper(5)}, time, effort, guard=guard)
    assert rounds.rounds == ("another process",) * 40


def test_a_guard_watches_the_samples_alone(time, effort):
    """Neither warming up nor what a lane does when it fails is held against a round."""
    guard = ScriptedGuard()

    def call():
        watched.append(guard.watching)
        time.sleep(5)

    watched = []
    run({"a": call}, time, effort, guard=guard)
    assert watched.count(True) == 20
    assert not watched[0]
    assert not guard.watching


def raises(error):
    raise error


def breaks_later(time, error, after=20):
    """A call that breaks at some time in the rounds."""
    left = iter(range(after))

    def call():
        time.sleep(5)
        if next(left, None) is None:
            raise error

    return call


ERRORS = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True, "out of memory while measuring"),
    (MemoryError(), True, "out of memory while measuring"),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."), True, "out of memory"),
    (ValueError("odd\nsecond line"), False, "ValueError while measuring: odd"),
]


@pytest.mark.parametrize(("error", "out_of_memory", "reason"), ERRORS)
def test_a_failure_in_the_rounds_leaves_the_others(time, effort, error, out_of_memory, reason):
    calls = {"a": time.sleeper(3), "b": breaks_later(time, error), "c": time.sleeper(4)}
    rounds = run(calls, time, effort)
    failure = rounds.failed[lane("b")]
    assert failure.out_of_memory is out_of_memory
    assert failure.reason.startswith(reason)
    assert "second line" not in failure.reason
    assert "in call\n" in failure.details
    assert {key.candidate: len(times) for key, times in rounds.times_ms.items()} == {"a": 20, "c": 20}


def test_a_failed_lane_is_let_go(time, effort):
    lanes = {lane(key): warmed(call, time, effort) for key, call in {"a": time.sleeper(3)}.items()}
    lanes[lane("b")] = replace(lanes[lane("a")], timed=Timed(lambda: raises(MemoryError()), time.clock()))
    interleave(lanes, effort, random.Random(0), ScriptedGuard(), lambda progress: None)
    assert list(lanes) == [lane("a")]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_passes_through(time, effort, interrupt):
    with pytest.raises(interrupt):
        run({"a": breaks_later(time, interrupt())}, time, effort)


def test_rounds_end_with_the_budget_but_not_too_early(time, effort):
    calls = {"a": time.sleeper(100), "b": time.sleeper(300)}
    cut = replace(effort, rounds=50, fewest_rounds=5, most_rounds=50, budget_ms=1_999)
    assert len(run(calls, time, cut).rounds) == 10  # 10 rounds of 400 ms
    assert len(run(calls, time, replace(cut, budget_ms=1)).rounds) == 5


def test_a_clock_that_stands_still_ends_too(time, effort):
    assert set(times_of({"a": lambda: None}, time, effort)["a"]) == {None}


def test_what_a_dropped_sample_took_counts(time, effort):
    """Compiled again in every sample: no times, but the budget ends it."""
    warm, compilations = warmed(time.sleeper(500), time, effort), count()
    lanes = {lane("a"): replace(warm, timed=replace(warm.timed, compiles=lambda: next(compilations)))}
    cut = replace(effort, rounds=20, fewest_rounds=5, budget_ms=3_000)
    rounds = interleave(lanes, cut, random.Random(0), ScriptedGuard(), lambda progress: None)
    assert rounds.times_ms[lane("a")] == (None,) * 6


def test_steps_are_clean_rounds_and_then_all_that_scattered_ratios_may_take(time):
    seen, rng = [], random.Random(0)
    calls = {key: lambda: time.sleep(20 * math.exp(rng.gauss(0, 0.5))) for key in "ab"}
    lanes = {lane(key): warm_up(Timed(call, time.clock()), EFFORTS["quick"]) for key, call in calls.items()}
    interleave(lanes, EFFORTS["quick"], rng, ScriptedGuard(), seen.append, {"b": "a"})
    steps = list(dict.fromkeys((one.done, one.total) for one in seen))
    assert steps == [*((done, 10) for done in range(10)), *((done, 40) for done in range(10, 40))]


def test_no_lanes_no_rounds(time, effort):
    assert run({}, time, effort).rounds == ()
