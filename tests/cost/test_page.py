"""The tables of docs/what-the-numbers-mean.md are what the ledger and the cross-check print."""

from __future__ import annotations

from pathlib import Path

from tests.cost import counters, prices

PAGE = (Path(__file__).parents[2] / "docs" / "what-the-numbers-mean.md").read_text(encoding="utf-8")


def test_prices_are_what_the_ledger_counts() -> None:
    assert prices.table().rstrip() in PAGE, "print it again: python -m tests.cost.prices"


def test_reasons_are_what_the_cross_check_finds() -> None:
    assert counters.table().rstrip() in PAGE, "print it again: python -m tests.cost.counters"


def test_every_key_of_a_cost_is_explained() -> None:
    """In the JSON of a block and of a model, in training as elsewhere."""
    import explorer

    workloads = [{"phase": phase, "tokens": 2} for phase in ("prefill", "train")]
    (row,) = explorer.run({"dim": 8, "heads": 2, "layers": 1, "workloads": workloads}).to_dict()["combinations"]
    about = {"workload", "scope", "name", "notes", "latency", "latencies"}
    keys = {key for cost in row["costs"] for key in cost} - about
    keys |= {f"memory.{key}" for key in row["costs"][0]["memory"]} | {f"params.{key}" for key in row["params"]}
    keys -= {"memory", "params.active_reason"}
    assert sorted(key for key in keys if f"`{key}`" not in PAGE) == []
