"""The statistics against Python's own, and the two public cases about them."""

import math
import statistics

import pytest
from scipy.stats import binom

from explorer.errors import MeasureError
from explorer.latency.statistics import half_interval, iqr_share, is_steady, median, quantile, spread, summarise

VALUES = [
    [3.0],
    [1.0, 2.0],
    [5.0, 1.0, 4.0, 2.0, 3.0],
    [1.0] * 9 + [11.0],
    [0.25, 7.5, 1.125, 3.0, 9.75, 2.0, 2.0, 8.0, 4.5, 6.0, 5.25],
]


@pytest.mark.parametrize("values", VALUES)
def test_median_is_pythons(values):
    assert median(values) == statistics.median(values)


@pytest.mark.parametrize("values", VALUES[1:])
@pytest.mark.parametrize("tenth", [1, 5, 9])
def test_quantile_is_pythons(values, tenth):
    expected = statistics.quantiles(values, n=10, method="inclusive")[tenth - 1]
    assert quantile(values, tenth / 10) == pytest.approx(expected)


@pytest.mark.parametrize("values", VALUES[1:])
def test_iqr_share_is_pythons_quartiles_over_its_median(values):
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    assert iqr_share(values) == pytest.approx((third - first) / middle)
    assert summarise(values).iqr_share == iqr_share(values)


@pytest.mark.parametrize("count", range(6, 91))
def test_half_an_interval_of_a_median_holds_it_in_95_percent_and_no_narrower_one_does(count):
    """Of values 0, 1, 2, ... it tells the ends, and those how often the median is between."""
    below = (count - 1) / 2 - half_interval(range(count))
    covered = 1 - 2 * binom.cdf(below, count, 0.5)
    assert below == math.floor(below)
    assert covered >= 0.95 > 1 - 2 * binom.cdf(below + 1, count, 0.5)


def test_half_an_interval_of_few_values_is_half_their_range():
    assert half_interval([3.0]) == 0
    assert half_interval([5.0, 1.0, 2.0]) == 2
    with pytest.raises(MeasureError, match="no valid sample"):
        half_interval([])


def test_an_outlier_moves_the_mean_and_not_the_median():
    """Public case C8."""
    summary = summarise([1.0] * 9 + [11.0])
    assert (summary.median, summary.low, summary.count, summary.dropped) == (1.0, 1.0, 10, 0)
    assert summary.high == pytest.approx(2.0)
    assert summary.iqr_share == 0.0


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ([], "no valid sample: nothing was measured"),
        ([float("nan"), 0.0, -1.0], "no valid sample: all 3 readings were zero, negative or not finite"),
    ],
)
def test_no_sample_has_a_reason(times, reason):
    """Public case C8: never NaN or 0."""
    with pytest.raises(MeasureError, match=f"^{reason}$"):
        summarise(times)
    with pytest.raises(MeasureError, match="no valid sample"):
        median([])


def test_what_is_dropped_is_counted():
    summary = summarise([2.0, float("inf"), 2.0, float("nan"), 0.0])
    assert (summary.median, summary.count, summary.dropped) == (2.0, 2, 3)


@pytest.mark.parametrize(
    ("values", "steady"),
    [
        ([], False),
        ([1.0], False),
        ([1.0, 1.09], True),
        ([1.0, 1.11], False),
        ([1.11, 1.0], False),
        ([1.0, 1.0, 9.0, 1.0, 1.0], True),
        ([12.0] * 7 + [4.0] * 13, False),  # public case C4 after a warm-up of 3 calls
    ],
)
def test_halves_tell_drift(values, steady):
    assert is_steady(values) is steady


def test_spread():
    assert spread([2.0, 3.0, 2.5]) == 0.5
