"""Curves: through their points, and never shorter for more."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.prediction.curves import Reach, Roof, TimeCurve

POSITIVE = st.floats(1e-3, 1e9)
POINTS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=8)
SLACK = 1 + 1e-9
"""What rounding may take away."""


def test_a_time_curve_goes_through_its_points_and_is_a_line_between_them() -> None:
    curve = TimeCurve.through([(400, 8.0), (100, 2.0)])
    assert [curve.at(size) for size in (0, 50, 100, 250, 400, 800)] == [0, 1, 2, 5, 8, 16]


def test_a_time_below_that_of_less_work_is_noise() -> None:
    assert TimeCurve.through([(1, 5.0), (2, 3.0), (4, 9.0)]).points == ((1, 5.0), (2, 5.0), (4, 9.0))


def test_of_several_times_of_one_size_the_mean_counts() -> None:
    assert TimeCurve.through([(1, 5.0), (1, 4.0)]).points == ((1, 4.5),)


def test_the_slowest_rate_on_the_way_counts() -> None:
    """2, 1, 3 and again 2 microseconds a byte: the last point holds beyond."""
    curve = TimeCurve(((1, 2.0), (2, 2.0), (4, 12.0), (8, 16.0)))
    assert [curve.at_rate_up_to(1, most) for most in (1, 2, 4, 8, 99)] == [2, 2, 3, 3, 3]
    assert curve.at_rate_up_to(2, 3) == pytest.approx(2 * 7 / 3)
    assert curve.at_rate_up_to(8, 4) == 16
    assert curve.at_rate_up_to(0, 8) == 0


def test_a_roof_is_bandwidth_on_the_left_and_arithmetic_on_the_right() -> None:
    roof = Roof.through([(1, 0.1), (10, 0.1), (100, 1.0)])
    assert [roof.at(intensity) for intensity in (0, 1, 10, 100)] == [0.1, 0.1, 0.1, 1.0]
    assert roof.at(1000) == pytest.approx(10.0)  # every FLOP costs what it did at the last point
    assert roof.floor == 0.1


def test_a_roof_never_rises_faster_than_its_flops() -> None:
    assert Roof.through([(1, 0.1), (2, 5.0)]).points == ((1, 0.1), (2, 0.2))


def test_reach_is_constant_beyond_its_ends() -> None:
    reach = Reach.through([(100, 1.0), (200, 3.0)])
    assert [reach.at(size) for size in (1, 100, 150, 200, math.inf)] == [1, 1, 2, 3, 3]
    assert reach.nearest == 1


@given(points=POINTS, small=POSITIVE, factor=st.floats(1, 1e4))
def test_more_bytes_never_take_less_time(points: list[tuple[float, float]], small: float, factor: float) -> None:
    curve, reach = TimeCurve.through(points), Reach.through(points)
    for most in (small, 10 * small, 1e9):
        assert curve.at_rate_up_to(small, most) <= curve.at_rate_up_to(small * factor, most) * SLACK
        assert curve.at_rate_up_to(small, most) <= curve.at_rate_up_to(small, most * factor) * SLACK
    assert curve.at(small) <= curve.at(small * factor) * SLACK
    assert reach.at(small) <= reach.at(small * factor) * SLACK


@given(points=POINTS, flops=POSITIVE, nbytes=POSITIVE, more_flops=st.floats(1, 1e3), more_bytes=st.floats(1, 1e3))
def test_more_flops_or_bytes_under_a_roof_never_take_less_time(
    points: list[tuple[float, float]], flops: float, nbytes: float, more_flops: float, more_bytes: float
) -> None:
    roof = Roof.through(points)

    def time(flops: float, nbytes: float) -> float:
        return nbytes * roof.at(flops / nbytes)

    assert time(flops, nbytes) <= time(flops * more_flops, nbytes) * SLACK
    assert time(flops, nbytes) <= time(flops, nbytes * more_bytes) * SLACK
