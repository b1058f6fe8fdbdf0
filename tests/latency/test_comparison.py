"""From stored times to verdicts: which rounds count, and that stored ones say the same again."""

import json
from dataclasses import replace

import pytest

from explorer.latency.comparison import compare, disturbed_of, ranked, ratio_of
from explorer.latency.raw import Lane, Process, Track, clean_times
from explorer.latency.verdict import Disturbed, Rule

A, B, C, CLONE = (Lane(key, "eager", "host") for key in ("a", "b", "c", "a~"))
ROUNDS = 20
WOBBLE = [1 + 0.002 * (index * 7 % 10) for index in range(ROUNDS)]


def process(levels, *, seed=0, disturbed=()):
    """A process in which each lane takes its level, a little more in some rounds."""
    tracks = [
        Track(lane, tuple(level * WOBBLE[(index + place) % ROUNDS] for index in range(ROUNDS)), 9.0, 3, 1)
        for place, (lane, level) in enumerate(levels.items())
    ]
    why = dict(disturbed)
    return Process(seed, tuple(tracks), tuple(why.get(index) for index in range(ROUNDS)), "a guard")


LEVELS = {A: 2.0, CLONE: 2.0, B: 2.2, C: 2.21}
THREE = [process(LEVELS, seed=seed) for seed in range(3)]


def words(comparison):
    return {lane.candidate: verdict.word for lane, verdict in comparison.verdicts.items()}


def test_a_comparison_holds_verdicts_and_the_control():
    found = compare(THREE, A, [B, CLONE, C], CLONE)
    assert words(found) == {"b": "slower", "a~": "tie", "c": "slower"}
    assert found.control == ratio_of(THREE, A, CLONE)
    assert found.control.value == pytest.approx(1.0, abs=0.01)
    assert found.base == A


def test_stored_times_give_the_same_verdicts():
    stored = [Process.from_dict(json.loads(json.dumps(one.to_dict()))) for one in THREE]
    assert compare(stored, A, [B, C], CLONE) == compare(THREE, A, [B, C], CLONE)


def test_disturbed_rounds_do_not_count():
    spoilt = process(LEVELS, disturbed=dict.fromkeys(range(5), "bursts"))
    track = spoilt.track(B)
    wrong = replace(track, times_ms=(500.0,) * 5 + track.times_ms[5:])
    spoilt = replace(spoilt, tracks=tuple(wrong if one.lane == B else one for one in spoilt.tracks))
    assert ratio_of([spoilt], A, B).rounds == 15
    assert ratio_of([spoilt], A, B).high < 1.2


def test_rounds_that_two_lanes_did_not_share_disturb_neither():
    noisy = process({A: 2.0, C: 2.2}, disturbed=dict.fromkeys(range(15), "bursts") | {15: "switches"})
    quiet = process({A: 2.0, B: 2.2}, seed=1)
    assert disturbed_of([noisy, quiet], A, B) == Disturbed(0, clean=20)
    assert disturbed_of([noisy, quiet], A, C) == Disturbed(16, "bursts", clean=4)
    found = compare([noisy, quiet], A, [B, C], None)
    assert words(found) == {"b": "slower", "c": "contended"}
    assert found.control is None
    reason = "too few clean rounds: 4, beside 16 disturbed ones, most often by bursts"
    assert found.verdicts[C].reason == reason


def with_clean(*counts, rounds=ROUNDS):
    """Processes with so many clean rounds each."""
    return [
        process(LEVELS, seed=seed, disturbed=dict.fromkeys(range(clean, rounds), "bursts"))
        for seed, clean in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("counts", "word", "processes"),
    [
        ((10,), "slower", 1),
        ((9,), "contended", None),
        ((4, 4, 4), "contended", None),  # 12 in all, and no process with enough
        ((20, 1, 1), "contended", None),
        ((20, 0, 0), "contended", None),
        ((20, 20, 1), "slower", 2),
        ((20, 1), "slower", 1),
    ],
)
def test_a_process_with_too_few_clean_rounds_counts_for_nothing(counts, word, processes):
    found = compare(with_clean(*counts), A, [B], None).verdicts[B]
    assert found.word == word
    assert (found.ratio.processes if found.ratio else None) == processes
    if word == "contended":
        spoilt = ROUNDS * len(counts) - sum(counts)
        reason = f"too few clean rounds: {sum(counts)}, beside {spoilt} disturbed ones, most often by bursts"
        assert found.reason == reason


@pytest.mark.parametrize(("clean", "disturbed", "word"), [(9, 9, "contended"), (9, 8, "slower"), (9, 0, "slower")])
def test_rounds_that_the_budget_ended_are_no_contention(clean, disturbed, word):
    whole = process(LEVELS, disturbed=dict.fromkeys(range(clean, clean + disturbed), "bursts"))
    rounds = clean + disturbed
    tracks = tuple(replace(track, times_ms=track.times_ms[:rounds]) for track in whole.tracks)
    cut = replace(whole, tracks=tracks, disturbed=whole.disturbed[:rounds])
    assert words(compare([cut], A, [B], None)) == {"b": word}


@pytest.mark.parametrize(("disturbed", "word"), [(20, "slower"), (21, "contended")])
def test_of_many_rounds_one_in_three_must_be_clean(disturbed, word):
    short = process(LEVELS)
    tracks = tuple(replace(one, times_ms=one.times_ms[:10] + one.times_ms[:1] * disturbed) for one in short.tracks)
    long = replace(short, tracks=tracks, disturbed=(None,) * 10 + ("bursts",) * disturbed)
    assert words(compare([long], A, [B], None)) == {"b": word}


def test_contended_ones_share_a_rank():
    assert ranked(with_clean(3), [C, A, B]) == {A: 1, B: 1, C: 1}


def watched(levels, **disturbed):
    """A process whose samples were watched one by one: by candidate, the rounds in which its own was disturbed."""
    whole = process(levels)
    tracks = tuple(
        replace(track, disturbed=tuple("bursts" if i in hit else None for i in range(ROUNDS)))
        for track in whole.tracks
        for hit in [disturbed.get(track.lane.candidate, ())]
    )
    any_hit = {index for hit in disturbed.values() for index in hit}
    return replace(whole, tracks=tracks, disturbed=tuple("bursts" if i in any_hit else None for i in range(ROUNDS)))


def test_a_disturbed_sample_spoils_the_pairs_of_its_own_lane():
    found = watched(LEVELS, b=range(5), c=range(5, 20))
    assert found.disturbed.count(None) == 0
    assert ratio_of([found], A, B).rounds == 15
    assert disturbed_of([found], A, C) == Disturbed(15, "bursts", clean=5)
    assert ratio_of([found], B, C) is None
    assert [len(clean_times([found], lane)) for lane in (A, B, C)] == [20, 15, 5]
    assert Process.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_lane_that_was_not_timed_has_a_reason():
    found = compare([process({A: 2.0, B: 2.2})], A, [B, C], CLONE)
    assert words(found) == {"b": "slower", "c": "unclear"}
    assert found.verdicts[C].reason == "there is no round in which both were timed"


def test_the_rule_is_passed_on():
    assert words(compare(THREE, A, [B], None, Rule(margin=0.2))) == {"b": "tie"}


def test_ranks_come_from_the_same_rounds():
    assert ranked(THREE, [C, A, B]) == {A: 1, B: 2, C: 2}


@pytest.mark.parametrize(("clone", "there"), [(2.0, True), (2.03, True), (2.2, False), (None, False)])
def test_no_ranks_beside_a_baseline_that_is_not_equal_to_itself(clone, there):
    levels = {A: 2.0, B: 2.2, C: 3.0} | ({} if clone is None else {CLONE: clone})
    three = [process(levels, seed=seed) for seed in range(3)]
    found = ranked(three, [A, B, C], controls=[ratio_of(three, A, CLONE)])
    assert found == ({A: 1, B: 2, C: 3} if there else {})
