"""Visible: one rule, said as a mask, as a number and as SDPA's flag."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from explorer import Visible

RULES = st.builds(Visible, st.booleans(), st.none() | st.integers(1, 12))
SIZES = st.integers(1, 10)


def sees(rule, query_place, key):
    """The rule in words: no later key if causal; a window counts the query's own key, centred if not causal."""
    if rule.causal:
        return key <= query_place and (rule.window is None or query_place - key < rule.window)
    if rule.window is None:
        return True
    return -((rule.window - 1) // 2) <= key - query_place <= rule.window // 2


@given(RULES, SIZES, SIZES)
def test_mask_is_the_rule_aligned_bottom_right(rule, T, S):
    expected = torch.tensor([[sees(rule, S - T + i, j) for j in range(S)] for i in range(T)])
    torch.testing.assert_close(rule.mask(T, S), expected)


@given(RULES, SIZES, SIZES)
def test_pairs_count_the_mask(rule, T, S):
    assert rule.pairs(T, S) == rule.mask(T, S).sum()


@given(RULES, SIZES, SIZES)
def test_everything_means_that_the_mask_hides_nothing(rule, T, S):
    assert rule.everything(T, S) == bool(rule.mask(T, S).all())


@given(RULES, SIZES, SIZES)
def test_sdpa_causal_means_the_lower_triangle(rule, T, S):
    if rule.sdpa_causal(T, S):
        torch.testing.assert_close(rule.mask(T, S), torch.ones(T, S, dtype=torch.bool).tril())


@pytest.mark.parametrize(
    ("rule", "T", "S", "pairs"),
    [
        (Visible(causal=True), 64, 64, 64 * 65 // 2),
        (Visible(causal=True, window=8), 64, 64, 8 * 9 // 2 + 56 * 8),
        (Visible(causal=True), 4, 10, 7 + 8 + 9 + 10),
        (Visible(causal=False), 5, 7, 35),
        (Visible(causal=True), 10**6, 10**6, 10**6 * (10**6 + 1) // 2),  # a closed form: a mask would take 1 TB
        (Visible(causal=True, window=1024), 1, 10**6, 1024),
    ],
)
def test_pairs_of_known_cases(rule, T, S, pairs):
    assert rule.pairs(T, S) == pairs


def test_a_window_sees_at_least_itself():
    with pytest.raises(ValueError, match="window 0 must be at least 1"):
        Visible(causal=True, window=0)
