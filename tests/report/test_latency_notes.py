"""What stands below the tables about latencies: what the words mean, and why one of them says nothing."""

from types import SimpleNamespace
from typing import Any

import pytest

from explorer.latency.ratio import Ratio
from explorer.latency.verdict import Disturbed, verdicts
from explorer.report.latency_notes import sums_of_parts
from explorer.report.notes import notes


def judged(make: SimpleNamespace, *told: tuple[str | None, str | None]) -> dict[str, Any]:
    """Rows with a verdict and its reason."""
    names = [f"row{number}" for number in range(len(told))]
    rows = []
    for name, (word, reason) in zip(names, told, strict=True):
        cost = make.cost(make.prefill, median=1.0)
        cost["latency"].update(verdict=word, reason=reason)
        rows.append(make.combination(name, {"norm": name}, [cost]))
    return make.document(rows, {"norm": names})


def lines(document: dict[str, Any]) -> tuple[str, ...]:
    return next((one.lines for one in notes(document) if one.head == "verdict"), ())


@pytest.mark.parametrize("word", ["faster", "slower", "tie", "small", "unclear", "contended"])
def test_each_word_that_is_shown_is_explained_and_no_other(make: SimpleNamespace, word: str) -> None:
    (meaning, *_) = lines(judged(make, (word, "because")))
    assert f"{word}: " in meaning or f"{word}, " in meaning
    assert ("tie: " in meaning) == (word == "tie")


def test_reasons_are_grouped(make: SimpleNamespace) -> None:
    closed = ("unclear", "not compared: results differ by 1.0e-01 (bound 1.0e-02)")
    document = judged(make, (None, None), closed, closed, ("tie", "+0.1 % [-1.0 %, +1.2 %], all of it within 3 %"))
    assert lines(document)[1:] == ("unclear: not compared: results differ by 1.0e-01 (bound 1.0e-02) (row1; row2)",)


def test_the_lane_is_named_where_there_are_several(make: SimpleNamespace) -> None:
    document = judged(make, ("contended", "others"), ("tie", "alike"))
    document["combinations"][1]["costs"][0]["latency"]["impl"] = "compile"
    assert "contended (eager, device): others (row0)" in lines(document)


def ratio(low: float, high: float) -> Ratio:
    """A ratio of that interval, its estimate in the middle."""
    middle = (low + high) / 2
    return Ratio(middle, low, high, middle, processes=3, rounds=60, per_process=(middle,) * 3)


def test_numbers_of_the_interval_are_left_to_the_table(make: SimpleNamespace) -> None:
    found = verdicts({"x": ratio(0.9, 1.2)}, None)["x"]
    assert "[-10.0 %, +20.0 %]" in found.reason
    assert lines(judged(make, (found.word, found.reason)))[1:] == ("unclear: neither within 3 % nor beyond",)


def test_a_baseline_that_differs_from_itself_keeps_its_numbers(make: SimpleNamespace) -> None:
    found = verdicts({"x": ratio(1.0, 1.3)}, ratio(1.1, 1.2))["x"]
    (line,) = lines(judged(make, (found.word, found.reason)))[1:]
    assert line == "unclear: the baseline differed from itself by +15.0 % [+10.0 %, +20.0 %]"


def test_contention_keeps_its_numbers(make: SimpleNamespace) -> None:
    found = verdicts({"x": None}, None, disturbed={"x": Disturbed(27, "a neighbour", clean=3)})["x"]
    assert lines(judged(make, (found.word, found.reason)))[1:] == (f"contended: {found.reason}",)
    assert "27 disturbed" in found.reason


def test_sums_tell_their_errors_lane_by_lane() -> None:
    lane = {"checked": 4, "median_error": 0.02, "largest_error": 0.05, "regime": "host"}
    part = {"block": "block", "pieces": 7, "lanes": [{**lane, "impl": "eager"}, {**lane, "impl": "compile"}]}
    (line,) = sums_of_parts({"runs": [{"measurements": [{"parts": part}]}]})
    assert line == (
        "block: sums of 7 parts; eager, host: against 4 whole blocks off by 2.0% (median), 5.0% at most; "
        "compile, host: against 4 whole blocks off by 2.0% (median), 5.0% at most"
    )
