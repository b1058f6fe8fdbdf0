"""From stored times to verdicts: which rounds count, and that stored ones say the same again."""

import json
from dataclasses import replace

import pytest

from explorer.latency.comparison import compare, disturbed_of, ranked, ratio_of
from explorer.latency.raw import Lane, Process, Track
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
    quiet = process({A: 2.0, B: 2.2})
    assert disturbed_of([noisy, quiet], A, B) == Disturbed(0)
    assert disturbed_of([noisy, quiet], A, C) == Disturbed(16, "bursts")
    found = compare([noisy, quiet], A, [B, C], None)
    assert words(found) == {"b": "slower", "c": "contended"}
    assert found.control is None
    reason = "too few clean rounds: 4, beside 16 disturbed ones, most often by bursts"
    assert found.verdicts[C].reason == reason


def test_a_lane_that_was_not_timed_has_a_reason():
    found = compare([process({A: 2.0, B: 2.2})], A, [B, C], CLONE)
    assert words(found) == {"b": "slower", "c": "unclear"}
    assert found.verdicts[C].reason == "there is no round in which both were timed"


def test_the_rule_is_passed_on():
    assert words(compare(THREE, A, [B], None, Rule(margin=0.2))) == {"b": "tie"}


def test_ranks_come_from_the_same_rounds():
    assert ranked(THREE, [C, A, B]) == {A: 1, B: 2, C: 2}
