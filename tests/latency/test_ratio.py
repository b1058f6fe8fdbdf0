"""Paired ratios against scipy's t test and formulas written out; simulated truth for the bootstrap."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from scipy import stats

from explorer.errors import MeasureError
from explorer.latency.ratio import FEWEST_ROUNDS, paired_ratio

ONE = [(2.0, 2.2), (2.0, 2.5), (4.0, 4.0), (3.0, 3.3), (5.0, 5.6), (2.0, 2.1), (1.0, 1.1)]
THREE = [ONE, [(1.0, 1.2), (1.1, 1.2), (1.2, 1.2)], [(3.0, 3.4), (3.0, 3.2)]]


def jittered(rng, rounds, factor=1.0, jitter=0.02, outliers=0.0):
    """Times of two candidates: a common drift, jitter of each, some readings several times as long."""

    def reading(level):
        return level * math.exp(rng.gauss(0, jitter)) * (rng.uniform(2, 6) if rng.random() < outliers else 1)

    return [(reading(1 + round_ / 10), reading(factor * (1 + round_ / 10))) for round_ in range(rounds)]


def test_each_process_counts_by_the_median_of_its_log_ratios():
    ratio = paired_ratio(THREE)
    middles = [statistics.median(math.log(b / a) for a, b in process) for process in THREE]
    assert ratio.per_process == pytest.approx([math.exp(middle) for middle in middles])
    assert ratio.value == pytest.approx(statistics.geometric_mean(map(math.exp, middles)))
    assert (ratio.processes, ratio.rounds) == (3, 12)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_several_processes_give_scipys_t_interval(confidence):
    ratio = paired_ratio(THREE, confidence=confidence)
    test = stats.ttest_1samp([math.log(value) for value in ratio.per_process], 0.0)
    low, high = test.confidence_interval(confidence)
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(low), math.exp(high)))


@pytest.mark.parametrize("bound", [0.9, 1.0, 1.03, 1.3])
def test_least_alpha_between_processes_is_scipys_p_value(bound):
    ratio = paired_ratio(THREE)
    logs = [math.log(value) for value in ratio.per_process]
    assert ratio.least_alpha(bound) == pytest.approx(stats.ttest_1samp(logs, math.log(bound)).pvalue)


@pytest.mark.parametrize("pairs", [[ONE], THREE])
def test_least_alpha_agrees_with_the_interval(pairs):
    ratio = paired_ratio(pairs, confidence=0.9)
    assert [ratio.least_alpha(end) for end in (ratio.low, ratio.high)] == pytest.approx([0.1, 0.1])
    assert ratio.least_alpha(ratio.value) == pytest.approx(1.0)
    alphas = [ratio.least_alpha(bound) for bound in (1.0, 0.98, 0.9, 0.5)]
    assert alphas == sorted(alphas, reverse=True)


def test_changing_places_turns_the_ratio_over():
    ratio, turned = (paired_ratio([pairs]) for pairs in (ONE, [(b, a) for a, b in ONE]))
    assert (turned.low, turned.value, turned.high) == pytest.approx((1 / ratio.high, 1 / ratio.value, 1 / ratio.low))
    assert turned.p10 == pytest.approx(1 / ratio.p10)


@pytest.mark.parametrize("pairs", [[ONE], THREE])
def test_what_both_share_in_a_round_cancels(pairs):
    drifting = [[(a * 1.1**i, b * 1.1**i) for i, (a, b) in enumerate(process)] for process in pairs]
    kept, drifted = paired_ratio(pairs), paired_ratio(drifting)
    assert (drifted.low, drifted.value, drifted.high) == pytest.approx((kept.low, kept.value, kept.high))


def test_p10_is_the_ratio_of_the_tenth_percentiles():
    tenth = [statistics.quantiles(times, n=10, method="inclusive")[0] for times in zip(*ONE, strict=True)]
    assert paired_ratio([ONE]).p10 == pytest.approx(tenth[1] / tenth[0])
    assert paired_ratio([ONE, [(2.0, 6.0)]]).p10 == pytest.approx(math.sqrt(tenth[1] / tenth[0] * 3))


@pytest.mark.parametrize("pairs", [[[(2.0, 3.0)] * 10], [[(2.0, 3.0)] * 4] * 3])
def test_equal_times_give_an_interval_without_width(pairs):
    ratio = paired_ratio(pairs)
    assert (ratio.low, ratio.value, ratio.high, ratio.p10) == pytest.approx((1.5, 1.5, 1.5, 1.5))
    assert (ratio.least_alpha(ratio.value), ratio.least_alpha(1.4)) == (1.0, pytest.approx(0.0))


@pytest.mark.parametrize("rounds", range(1, FEWEST_ROUNDS))
def test_too_few_rounds_of_one_process_have_no_interval(rounds):
    ratio = paired_ratio([ONE[:rounds]])
    assert (ratio.low, ratio.high, ratio.rounds) == (None, None, rounds)
    assert ratio.least_alpha(0.1) == 1.0


def test_an_empty_process_is_none():
    assert paired_ratio([[], ONE]) == paired_ratio([ONE])


@pytest.mark.parametrize("pairs", [[], [[]]])
def test_no_pairs_have_a_reason(pairs):
    """Public case C8: never NaN or 0."""
    with pytest.raises(MeasureError, match=r"^no ratio: there is no clean round in which both were timed$"):
        paired_ratio(pairs)


def test_an_outlier_moves_neither_value_nor_interval_far():
    """Public case C8."""
    even = [(1.0, 1.1 + 0.001 * i) for i in range(10)]
    spoilt = [*even[:-1], (1.0, 11.0)]
    ratio = paired_ratio([spoilt])
    assert ratio.value == paired_ratio([even]).value
    assert ratio.high < 1.12


def test_the_seed_decides_the_resamples():
    assert paired_ratio([ONE], seed=1) == paired_ratio([ONE], seed=1)
    assert replace(paired_ratio([ONE], seed=1), low=None, high=None) == replace(
        paired_ratio([ONE], seed=2), low=None, high=None
    )


@pytest.mark.parametrize(("rounds", "outliers"), [(5, 0.0), (10, 0.0), (10, 0.1), (10, 0.3), (20, 0.1)])
def test_one_processs_interval_holds_the_truth_as_often_as_it_says(rounds, outliers):
    """95 % of 200 runs, less three standard errors."""
    rng = random.Random(7)
    found = [paired_ratio([jittered(rng, rounds, 1.1, outliers=outliers)]) for _ in range(200)]
    assert sum(ratio.low <= 1.1 <= ratio.high for ratio in found) >= 200 * 0.95 - 3 * math.sqrt(200 * 0.95 * 0.05)
