"""Blueprints and runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

import explorer
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
