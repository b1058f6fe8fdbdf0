"""A lane over all its processes in numbers. Public cases C4, C7 and C8."""

import json

import pytest

from explorer.errors import MeasureError
from explorer.latency.raw import Failed, Lane, Process, Track, clean_pairs, clean_times
from explorer.latency.timing import timing

A, B = Lane("a", "eager", "host"), Lane("b", "eager", "host")


def track(lane, times, **more):
    return Track(lane, tuple(times), **{"first_call_ms": 200.0, "warmup": 7, "calls": 4, **more})


def process(*tracks, seed=0, disturbed=None, threads=1):
    rounds = disturbed or (None,) * len(tracks[0].times_ms)
    return Process(seed, tracks, rounds, "a guard", {"threads": threads, "device_name": "a device"})


def test_an_outlier_moves_the_mean_and_not_the_median():
    """Public case C8."""
    found = timing([process(track(A, [1.0] * 9 + [11.0]))], A)
    assert (found.median_ms, found.low_ms, found.rounds, found.dropped) == (1.0, 1.0, 10, 0)
    assert found.high_ms == pytest.approx(2.0)


def test_when_every_sample_is_dropped_there_is_a_reason():
    """Public case C8: never NaN or 0."""
    with pytest.raises(MeasureError, match=r"^no valid sample: all 3 readings were zero, negative or not finite$"):
        timing([process(track(A, [None] * 3))], A)


def test_a_lane_that_nobody_measured_has_a_reason():
    with pytest.raises(MeasureError, match=r"no valid sample: b was not measured \(eager, host\)"):
        timing([process(track(A, [1.0]))], B)


def test_only_clean_rounds_count():
    found = timing([process(track(A, [1.0, 9.0, 1.2, None]), disturbed=(None, "a burst", None, None))], A)
    assert (found.median_ms, found.rounds, found.clean, found.dropped) == (1.1, 2, 0.75, 1)


def test_where_no_round_is_clean_all_are_shown_and_it_says_so():
    found = timing([process(track(A, [1.0, 3.0]), disturbed=("a burst", "a burst"))], A)
    assert (found.median_ms, found.rounds, found.clean) == (2.0, 2, 0.0)


def test_times_of_all_processes_are_together():
    both = [process(track(A, [1.0, 1.0]), track(B, [5.0, 5.0])), process(track(A, [2.0, 2.0]), seed=1)]
    found = timing(both, A)
    assert (found.median_ms, found.rounds, found.processes, found.together) == (1.5, 4, 2, 2)
    assert timing(both, B).processes == 1


def test_groups_of_one_process_are_one_process():
    both = [process(track(A, [1.0, 1.0]), seed=4), process(track(A, [2.0, 2.0]), seed=4)]
    assert timing(both, A).processes == 1


def test_drift_is_flagged():
    """Public case C4 where the warm-up ends too early: the number carries the warning."""
    steady, drifting = process(track(A, [4.0] * 20)), process(track(A, [12.0] * 7 + [4.0] * 13), seed=1)
    assert timing([steady], A).steady
    assert not timing([drifting], A).steady
    assert not timing([steady, drifting], A).steady


def test_a_timing_is_an_entry():
    noted = process(track(A, [1.0], copies=8, cache="cold weights", notes=("a note",)))
    entry = timing([noted, noted], A).to_dict()
    assert json.loads(json.dumps(entry)) == entry
    expected = {
        "source": "measured",
        "device": "a device",
        "impl": "eager",
        "regime": "host",
        "first_call_ms": 200.0,
        "warmup": 7,
        "calls": 4,
        "copies": 8,
        "cache": "cold weights",
        "threads": 1,
        "notes": ["a note"],
    }
    assert {key: entry[key] for key in expected} == expected


@pytest.mark.parametrize(
    "read", [lambda both: timing(both, A), lambda both: clean_times(both, A), lambda both: clean_pairs(both, A, B)]
)
def test_different_thread_counts_are_not_compared(read):
    """Public case C7."""
    both = [process(track(A, [1.0]), track(B, [1.0]), threads=1), process(track(A, [1.0]), seed=1, threads=2)]
    with pytest.raises(MeasureError, match="times taken with 1 and 2 threads are not compared"):
        read(both)


def test_pairs_are_those_of_clean_rounds_with_both_times_process_by_process():
    one = process(track(A, [1.0, 2.0, 3.0, None]), track(B, [4.0, 5.0, 6.0, 7.0]), disturbed=(None, "x", None, None))
    two = process(track(A, [8.0]), track(B, [9.0]), seed=1)
    alone = process(track(A, [1.0]), seed=2)
    again = process(track(A, [10.0]), track(B, [11.0]), seed=1)
    assert clean_pairs([one, two, alone, again], A, B) == [[(1.0, 4.0), (3.0, 6.0)], [(8.0, 9.0), (10.0, 11.0)]]


def test_failures_survive_json():
    failed = Process(0, (), (), "a guard", failed=(Failed("a", "out of memory", "eager", "device", True, "lines"),))
    assert Process.from_dict(json.loads(json.dumps(failed.to_dict()))) == failed
