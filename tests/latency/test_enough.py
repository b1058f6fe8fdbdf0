"""How many rounds a comparison takes: a few where times agree, more where they scatter."""

import math
import random
from dataclasses import replace

import pytest

from explorer.latency.effort import EFFORTS
from explorer.latency.enough import Taken, fewest_clean, is_enough
from explorer.latency.raw import Lane

BASE, OTHER = (Lane(key, "eager", "host") for key in ("base", "other"))
BASELINES = {"base": None, "other": "base"}
QUICK = EFFORTS["quick"]


def taken(base, other, disturbed=()):
    """Samples of one step of two lanes; disturbed: the rounds in which the second was."""
    lanes = {BASE: Taken(), OTHER: Taken()}
    for index, (one, another) in enumerate(zip(base, other, strict=True)):
        lanes[BASE].add(one, None, one)
        lanes[OTHER].add(another, "a burst" if index in disturbed else None, another or 0.0)
    return lanes


def rounds_until_enough(jitter, effort=QUICK, seed=0):
    """How many rounds of two lanes with so much jitter (standard deviation of the log of a time) are enough."""
    rng = random.Random(seed)
    lanes = {BASE: Taken(), OTHER: Taken()}
    while not is_enough(lanes, BASELINES, effort):
        for lane in lanes.values():
            lane.add(20 * math.exp(rng.gauss(0, jitter)), None, 20)
    return len(lanes[BASE].times_ms)


def test_steady_times_need_no_more_than_the_effort_wants():
    assert rounds_until_enough(0.001) == QUICK.rounds


def test_what_scatters_takes_more_rounds_but_not_without_end():
    found = [sum(rounds_until_enough(jitter, seed=seed) for seed in range(20)) / 20 for jitter in (0.01, 0.03, 0.05)]
    assert found == sorted(found)
    assert QUICK.rounds < found[1] < QUICK.most_rounds
    assert rounds_until_enough(0.5) == QUICK.most_rounds


@pytest.mark.parametrize(("precise", "enough"), [(0.020, True), (0.016, False)])
def test_half_an_interval_is_compared_with_what_is_wanted(precise, enough):
    """Of ten ratios the interval of the median is from the second to the ninth: 1.00 to 1.035 here."""
    ratios = [0.5, 1.0, 1.0, 1.0, 1.01, 1.02, 1.02, 1.03, 1.035, 3.0]
    lanes = taken([20.0] * 10, [20 * ratio for ratio in ratios])
    assert is_enough(lanes, BASELINES, replace(QUICK, precise=precise)) is enough


def test_what_is_not_compared_may_scatter():
    rng = random.Random(0)
    lanes = taken([20.0] * 10, [20 * math.exp(rng.gauss(0, 0.5)) for _ in range(10)])
    assert not is_enough(lanes, BASELINES, QUICK)
    assert is_enough(lanes, {}, QUICK)


def test_disturbed_rounds_do_not_count():
    lanes = taken([20.0] * 10, [20.0] * 10, disturbed={3})
    assert fewest_clean(lanes, BASELINES) == 9
    assert not is_enough(lanes, BASELINES, QUICK)
    scattered = [90.0 if index >= 10 else 20.0 for index in range(14)]
    assert is_enough(taken([20.0] * 14, scattered, disturbed=range(10, 14)), BASELINES, QUICK)
    assert not is_enough(taken([20.0] * 14, scattered), BASELINES, QUICK)


def test_a_budget_ends_the_rounds_once_there_are_a_few():
    lanes = taken([3_000.0] * 4, [3_000.0] * 4)
    assert not is_enough(lanes, BASELINES, QUICK)
    assert is_enough(taken([3_000.0] * 5, [3_000.0] * 5), BASELINES, QUICK)
    assert not is_enough(taken([1_000.0] * 5, [1_000.0] * 5), BASELINES, QUICK)


def test_no_valid_reading_is_not_waited_for_but_one_is_not_enough():
    assert is_enough(taken([20.0] * 10, [None] * 10), BASELINES, QUICK)
    assert not is_enough(taken([20.0] * 10, [*[None] * 6, *[20.0] * 4]), BASELINES, QUICK)
    assert is_enough(taken([20.0] * 10, [*[None] * 5, *[20.0] * 5]), BASELINES, QUICK)


def test_what_is_dropped_takes_of_the_budget():
    lanes = {BASE: Taken()}
    for _ in range(5):
        lanes[BASE].add(None, None, 3_000.0)  # compiled again in every sample
    assert is_enough(lanes, BASELINES, QUICK)
