"""Ranks are shared wherever the intervals do not keep candidates apart."""

from dataclasses import replace

import pytest

from explorer.latency.ranking import ranks
from explorer.latency.ratio import Ratio
from explorer.latency.verdict import Rule


def ratios(levels, width):
    """The ratio of two candidates of these levels, its interval `width` to each side."""

    def ratio_of(base, other):
        value = levels[other] / levels[base]
        return Ratio(value, value * (1 - width), value * (1 + width), value, 3, 60, (value,) * 3)

    return ratio_of


@pytest.mark.parametrize(
    ("levels", "width", "expected"),
    [
        ({"a": 1.0}, 0.01, {"a": 1}),
        ({"a": 2.0, "b": 1.0, "c": 3.0}, 0.01, {"a": 2, "b": 1, "c": 3}),
        ({"a": 1.0, "b": 1.01, "c": 1.02, "d": 1.5}, 0.01, {"a": 1, "b": 1, "c": 1, "d": 4}),
        ({"a": 1.5, "b": 1.49, "c": 1.0}, 0.01, {"a": 2, "b": 2, "c": 1}),
        ({"a": 1.0, "b": 1.2, "c": 1.8}, 0.3, {"a": 1, "b": 1, "c": 3}),  # wide intervals, not point estimates
        ({"a": 1.0, "b": 1.05, "c": 1.10}, 0.01, {"a": 1, "b": 2, "c": 3}),
        ({}, 0.01, {}),
    ],
)
def test_groups(levels, width, expected):
    assert ranks(list(levels), ratios(levels, width)) == expected


def test_the_order_given_does_not_matter():
    levels = {"a": 1.0, "b": 1.02, "c": 1.5, "d": 1.51, "e": 2.0}
    expected = {"a": 1, "b": 1, "c": 3, "d": 3, "e": 5}
    for order in ("abcde", "edcba", "cebad"):
        assert ranks(order, ratios(levels, 0.005)) == expected


def test_the_margin_joins():
    levels = {"a": 1.0, "b": 1.05}
    assert ranks("ab", ratios(levels, 0.001)) == {"a": 1, "b": 2}
    assert ranks("ab", ratios(levels, 0.001), Rule(margin=0.06)) == {"a": 1, "b": 1}


def test_one_of_many_needs_more_to_be_slower():
    """By itself c is shown to be slower at 5 %, as one of two it is not (Holm)."""
    assert ranks("ac", ratios({"a": 1.0, "c": 1.5}, 0.3)) == {"a": 1, "c": 2}
    assert ranks("abc", ratios({"a": 1.0, "b": 1.2, "c": 1.5}, 0.3)) == {"a": 1, "b": 1, "c": 1}


def test_what_medians_and_tenth_percentiles_say_differently_shares_a_rank():
    known = ratios({"a": 1.0, "b": 1.2}, 0.01)

    def ratio_of(base, other):
        ratio = known(base, other)
        return replace(ratio, p10=ratio.value**0.5)

    assert ranks("ab", known) == {"a": 1, "b": 2}
    assert ranks("ab", ratio_of) == {"a": 1, "b": 1}


def test_what_was_never_timed_together_shares_a_rank():
    assert ranks("ab", lambda base, other: None) == {"a": 1, "b": 1}
    assert ranks("ab", lambda base, other: Ratio(2.0, None, None, 2.0, 1, 3, (2.0,))) == {"a": 1, "b": 1}
