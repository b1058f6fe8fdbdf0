"""Blueprints and runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

import explorer
from explorer.report.notes import notes
from explorer.report.terminal import terminal
from explorer.study.comparing import compare, join

TOY: dict[str, Any] = {"dim": 16, "heads": 4, "layers": 2, "vocab": 32}


def joined(*changes: dict[str, Any]) -> dict[str, Any]:
    blueprints = [explorer.load({**TOY, "name": "toy", **change}) for change in changes]
    return join(list(compare(blueprints, lambda *_: None))).to_dict()


def test_rows_are_told_by_the_name_of_their_blueprint() -> None:
    document = joined({"name": "a"}, {"name": "b", "norm": "layernorm"})
    assert document["axes"] == {"blueprint": ["a", "b"]}
    assert [row["choices"] for row in document["combinations"]] == [{"blueprint": "a"}, {"blueprint": "b"}]
    assert [row["baseline"] for row in document["combinations"]] == [True, False]


def test_one_name_twice_is_numbered() -> None:
    document = joined({}, {})
    assert document["axes"]["blueprint"] == ["toy (1)", "toy (2)"]
    assert len({row["id"] for row in document["combinations"]}) == 2


def test_fields_that_differ_are_set_side_by_side() -> None:
    document = joined({}, {"attention": {"gqa": {"kv_heads": 2}}, "window": 4})
    found = {one["path"]: one["values"] for one in document["differences"]}
    assert found["window"] == [None, 4]
    assert found["attention.gqa.kv_heads"] == [None, 2]
    assert "dim" not in found


def test_the_shortest_table_sets_the_length_of_all() -> None:
    document = joined({}, {"position": {"learned": {"max_tokens": 40}}})
    assert {cost["workload"]["tokens"] for row in document["combinations"] for cost in row["costs"]} == {40}


def test_axes_of_the_blueprints_stay() -> None:
    document = joined({"explore": {"norm": ["rmsnorm", "layernorm"]}}, {"explore": {"norm": ["dyt"]}})
    assert document["axes"]["norm"] == ["rmsnorm", "layernorm", "dyt"]
    assert document["counts"] == {"product": 3, "rows": 3, "skipped": 0, "merged": 0}


@pytest.mark.parametrize(("count", "baselines"), [(6, 1), (7, 0)])
def test_many_rows_are_a_table_and_not_a_comparison_with_the_first(count: int, baselines: int) -> None:
    document = joined(*({"name": f"toy-{n}", "layers": n} for n in range(1, count + 1)))
    assert sum(row["baseline"] for row in document["combinations"]) == baselines
    assert bool(document["differences"]) == bool(baselines)


def measured_run(name: str, median: float, *, threads: int) -> dict[str, Any]:
    """A run of two rows as `run --measure` leaves it: its second row is slower than its own baseline."""
    document = explorer.run({**TOY, "name": name, "explore": {"norm": ["rmsnorm", "layernorm"]}}, audit=0).to_dict()
    for index, row in enumerate(document["combinations"]):
        judged = {"verdict": "slower", "ratio": {"value": 1.1}, "rank": 2, "reason": "+10 %"} if index else {}
        span = {"impl": "eager", "regime": "host", "median_ms": median, "low_ms": median, "high_ms": median}
        entry = {"source": "measured", "device": "cpu", **span, "verdict": None, "ratio": None, "reason": None}
        guess = {"source": "predicted", "device": "l4", **span, "reason": "not validated", "basis": "a data sheet"}
        cost = next(cost for cost in row["costs"] if cost["scope"] == "block")
        cost.update(latencies=[{**entry, **judged}, guess], latency={**entry, **judged})
    document["environment"]["measured_on"] = {"threads": threads}
    document["measurements"] = [{"parts": {"block": "block", "pieces": 7, "median_error": None}}]
    return document


def test_runs_of_different_sessions_are_not_compared() -> None:
    runs = [measured_run("a", 1.0, threads=1), measured_run("b", 2.0, threads=2)]
    document = join(runs).to_dict()
    costs = [cost for row in document["combinations"] for cost in row["costs"] if cost["scope"] == "block"]
    assert [cost["latency"]["median_ms"] for cost in costs] == [1.0, 1.0, 2.0, 2.0]
    assert [cost["latency"]["session"] for cost in costs] == ["a", "a", "b", "b"]
    for cost in costs:
        assert cost["latency"] == cost["latencies"][0]
        assert {cost["latency"].get(key) for key in ("verdict", "ratio", "rank")} == {None}
        assert cost["latency"]["reason"] == "measured in different sessions: not compared"
        assert (cost["latencies"][1]["source"], cost["latencies"][1]["reason"]) == ("predicted", "not validated")
    text = terminal(document, width=160, color=False)
    assert "no verdict: measured in different sessions: not compared" in text
    assert "slower" not in text
    assert runs[0]["combinations"][1]["costs"][0]["latency"]["verdict"] == "slower", "what was read stays as it was"


def test_each_run_keeps_its_environment_and_measurements() -> None:
    document = join([measured_run("a", 1.0, threads=1), measured_run("b", 2.0, threads=2)]).to_dict()
    assert [run["name"] for run in document["runs"]] == ["a", "b"]
    assert [run["environment"]["measured_on"]["threads"] for run in document["runs"]] == [1, 2]
    assert all(run["measurements"] for run in document["runs"])
    assert "measured_on" not in document["environment"]
    assert document["environment"]["torch"] == document["runs"][1]["environment"]["torch"]
    (environment,) = [note.lines for note in notes(document) if note.head == "environment"]
    assert environment[1:] == ("a: threads 1", "b: threads 2")


def test_what_could_not_be_timed_keeps_its_reason() -> None:
    runs = [measured_run(name, 1.0, threads=1) for name in "ab"]
    cost = runs[1]["combinations"][0]["costs"][0]
    cost["latencies"][0] |= {"median_ms": None, "reason": "out of memory"}
    reasons = [row["costs"][0]["latency"]["reason"] for row in join(runs).to_dict()["combinations"]]
    assert reasons[2] == "out of memory"
