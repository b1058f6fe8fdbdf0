"""Every word and its reason, from ratios written down by hand."""

import pytest

from explorer.latency.ratio import Ratio
from explorer.latency.verdict import ONE_PROCESS, Disturbed, Rule, verdicts


def ratio(low, value, high, *, p10=None, processes=3, rounds=60):
    return Ratio(value, low, high, p10 or value, processes, rounds, (value,) * processes)


def verdict(of, control=None, **options):
    return verdicts({"x": of}, control, **options)["x"]


@pytest.mark.parametrize(
    ("low", "value", "high", "word", "reason"),
    [
        (1.079, 1.102, 1.124, "slower", "+10.2 % [+7.9 %, +12.4 %], all of it beyond 3 %"),
        (0.880, 0.900, 0.920, "faster", "-10.0 % [-12.0 %, -8.0 %], all of it beyond 3 %"),
        (0.990, 1.003, 1.011, "tie", "+0.3 % [-1.0 %, +1.1 %], all of it within 3 %"),
        (1.005, 1.010, 1.020, "tie", "+1.0 % [+0.5 %, +2.0 %], all of it within 3 %"),
        (1.008, 1.025, 1.041, "small", "+2.5 % [+0.8 %, +4.1 %]: a difference, but perhaps within 3 %"),
        (0.950, 0.970, 0.990, "small", "-3.0 % [-5.0 %, -1.0 %]: a difference, but perhaps within 3 %"),
        (0.960, 1.010, 1.050, "unclear", "+1.0 % [-4.0 %, +5.0 %]: neither within 3 % nor beyond"),
        (0.990, 1.100, 1.200, "unclear", "+10.0 % [-1.0 %, +20.0 %]: neither within 3 % nor beyond"),
    ],
)
def test_the_interval_decides(low, value, high, word, reason):
    found = verdict(ratio(low, value, high))
    assert (found.word, found.reason) == (word, reason)
    turned = verdict(ratio(1 / high, 1 / value, 1 / low))
    assert turned.word == {"slower": "faster", "faster": "slower"}.get(word, word)


@pytest.mark.parametrize(("low", "word"), [(1.0299, "small"), (1.0301, "slower")])
def test_the_margin_is_three_percent(low, word):
    assert verdict(ratio(low, 1.05, 1.07)).word == word


def test_another_margin():
    assert verdict(ratio(1.05, 1.06, 1.07), rule=Rule(margin=0.10)).word == "tie"


def test_one_process_is_labelled_whatever_the_word():
    for low, value, high in [(1.08, 1.10, 1.12), (0.99, 1.0, 1.01), (0.9, 1.0, 1.1)]:
        assert verdict(ratio(low, value, high, processes=1, rounds=10)).reason.endswith(f"; {ONE_PROCESS}")
        assert ONE_PROCESS not in verdict(ratio(low, value, high, processes=2)).reason


SLOWER = ratio(1.08, 1.10, 1.12)


@pytest.mark.parametrize(
    ("p10", "word"), [(1.10, "slower"), (1.06, "slower"), (1.15, "slower"), (1.04, "unclear"), (1.16, "unclear")]
)
def test_the_tenth_percentiles_must_agree(p10, word):
    found = verdict(ratio(1.08, 1.10, 1.12, p10=p10))
    assert found.word == word
    if word == "unclear":
        assert found.reason == f"+10.0 % [+8.0 %, +12.0 %] by medians, {100 * (p10 - 1):+.1f} % by 10th percentiles"


@pytest.mark.parametrize(
    "control",
    [
        None,
        ratio(0.99, 1.00, 1.01),
        ratio(1.01, 1.02, 1.03),  # differs, but within the margin
        ratio(0.96, 1.05, 1.14),  # beyond the margin, but by chance
        Ratio(1.05, None, None, 1.05, 1, 3, (1.05,)),
    ],
)
def test_a_baseline_that_equals_itself_lets_the_verdict_stand(control):
    assert verdict(SLOWER, control).word == "slower"


@pytest.mark.parametrize(
    ("control", "shown"),
    [
        (ratio(1.02, 1.05, 1.08), "+5.0 % [+2.0 %, +8.0 %]"),
        (ratio(0.90, 0.93, 0.96), "-7.0 % [-10.0 %, -4.0 %]"),
    ],
)
def test_a_baseline_that_differs_from_itself_decides_no_more_than_by_that(control, shown):
    found = verdicts({"x": SLOWER, "y": ratio(0.99, 1.0, 1.01)}, control)
    reason = f"the baseline differed from itself by {shown}"
    assert [(one.word, one.reason.partition(": ")[2]) for one in found.values()] == [("unclear", reason)] * 2


@pytest.mark.parametrize("control", [ratio(1.02, 1.05, 1.08), ratio(1 / 1.08, 1 / 1.05, 1 / 1.02)])
@pytest.mark.parametrize(("low", "word"), [(1.081, "unclear"), (1.082, "slower")])
def test_what_is_beyond_that_stands(control, low, word):
    """1.03 x 1.05 = 1.0815."""
    found = verdict(ratio(low, 1.10, 1.12, processes=5), control)
    assert found.word == word
    if word == "slower":
        limit = "8.2 % (3 % beside 5.0 % in the baseline)"
        assert found.reason == f"+10.0 % [+8.2 %, +12.0 %], all of it beyond {limit}"
    fast = verdict(ratio(1 / 1.12, 1 / 1.10, 1 / low, processes=5), control)
    assert fast.word == {"slower": "faster"}.get(word, word)


def test_holm_asks_more_beyond_a_baseline_that_is_off_too():
    control = ratio(1.02, 1.05, 1.08)
    assert verdicts(candidates(1.09), control)["at 1.09"].word == "slower"
    found = verdicts(candidates(1.09, 1.091), control)["at 1.09"]
    limit = "beyond 8.2 % (3 % beside 5.0 % in the baseline)"
    assert found.word == "unclear"
    assert found.reason == f"+14.5 % [+9.0 %, +20.2 %]: {limit} by itself, but not as one of 2 candidates"


def test_a_small_difference_is_larger_than_the_baselines():
    small = ratio(1.008, 1.025, 1.041)
    assert verdict(small, ratio(0.99, 1.007, 1.02)).word == "small"
    for control in (ratio(0.99, 1.009, 1.02), ratio(0.98, 1 / 1.009, 1.01)):
        found = verdict(small, control)
        assert found.word == "unclear"
        assert found.reason.endswith(": perhaps no more than the +0.9 % of the baseline against itself")


@pytest.mark.parametrize(
    ("disturbed", "word", "reason"),
    [
        ({"x": Disturbed(20)}, "contended", "too few clean rounds: 0, beside 20 disturbed ones"),
        (None, "unclear", "there is no round in which both were timed"),
        ({"y": Disturbed(20)}, "unclear", "there is no round in which both were timed"),
    ],
)
def test_without_a_ratio_there_is_a_reason(disturbed, word, reason):
    """Public case C8: all samples dropped."""
    found = verdict(None, disturbed=disturbed)
    assert (found.word, found.reason, found.ratio) == (word, reason, None)


def test_without_an_interval_there_is_no_word():
    found = verdict(Ratio(1.5, None, None, 1.5, 1, 3, (1.5,)))
    assert (found.word, found.reason) == ("unclear", f"too few clean rounds for an interval: 3; {ONE_PROCESS}")


def test_contention_goes_before_all_else():
    off = ratio(1.02, 1.05, 1.08)
    found = verdict(None, off, disturbed={"x": Disturbed(17, "CPU pressure", clean=3)})
    assert found.word == "contended"
    assert found.reason == "too few clean rounds: 3, beside 17 disturbed ones, most often by CPU pressure"


def candidates(*lows):
    """Ratios of 5 processes whose interval begins at these values, 5 % below its middle."""
    return {f"at {low}": ratio(low, 1.05 * low, 1.05**2 * low, processes=5) for low in lows}


def test_holm_asks_more_of_more_candidates():
    close, clear = candidates(1.035), candidates(1.5)
    assert verdicts(close, None)["at 1.035"].word == "slower"
    found = verdicts(close | clear, None)
    assert found["at 1.5"].word == "slower"
    assert found["at 1.035"].word == "slower"  # the last of all is asked no more than alone
    found = verdicts(close | candidates(1.036), None)
    assert {one.word for one in found.values()} == {"unclear"}
    reason = "+8.7 % [+3.5 %, +14.1 %]: beyond 3 % by itself, but not as one of 2 candidates"
    assert found["at 1.035"].reason == reason


def test_holm_by_its_own_definition():
    lows = [1.031, 1.05, 1.06, 1.08, 1.09, 1.2, 0.98, 1.0]
    ratios = candidates(*lows) | {"none": None}
    alphas = sorted((one.least_alpha(1.03), key) for key, one in ratios.items() if one)
    expected = set()
    for place, (alpha, key) in enumerate(alphas):
        if alpha * (len(alphas) - place) > 0.05:
            break
        expected.add(key)
    slower = {key for key, one in verdicts(ratios, None).items() if one.word == "slower"}
    assert slower == expected
    assert 1 < len(slower) < 5


def test_fast_and_slow_ones_share_the_same_alpha():
    slow = candidates(1.035)["at 1.035"]
    fast = ratio(1 / slow.high, 1 / slow.value, 1 / slow.low, processes=5)
    assert [one.word for one in verdicts({"slow": slow, "fast": fast}, None).values()] == ["unclear", "unclear"]
    assert verdict(fast).word == "faster"


def test_any_number_of_candidates_may_be_told_apart_by_one_process():
    """Differences far beyond the noise survive Holm, which a count of resamples could not show."""
    many = {index: ratio(1.95, 2.0, 2.05, processes=1, rounds=10) for index in range(1000)}
    assert {one.word for one in verdicts(many, None).values()} == {"slower"}
