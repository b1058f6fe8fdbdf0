"""`explorer.run`: rows, refusals, baselines, and what measuring must leave alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import explorer
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry

TOY: dict[str, Any] = {"dim": 16, "heads": 4, "workloads": [{"tokens": 8, "dtype": "float32"}]}


def rows(fields: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return explorer.run(explorer.load({**TOY, **fields}), **options).to_dict()["combinations"]


def test_what_a_component_refuses_is_a_skipped_row_with_its_reason() -> None:
    found = rows({"explore": {"attention": [{"gqa": {"kv_heads": 3}}, {"gqa": {"kv_heads": 2}}, "mha"]}})
    assert [row["skipped"] is None for row in found] == [False, True, True]
    assert "heads 4 must divide by kv_heads 3" in found[0]["skipped"]
    assert found[0]["params"] is None
    assert found[0]["costs"] == []


def test_the_first_row_that_lives_is_the_baseline() -> None:
    found = rows({"explore": {"attention": [{"gqa": {"kv_heads": 3}}, {"gqa": {"kv_heads": 2}}, "mha"]}})
    assert [row["baseline"] for row in found] == [False, True, False]
    assert {row["baseline_id"] for row in found} == {found[1]["id"]}


def test_no_row_left_is_an_error_at_the_component() -> None:
    blueprint = explorer.load({**TOY, "explore": {"attention.kv_heads": [3, 5]}, "attention": {"gqa": {"kv_heads": 3}}})
    with pytest.raises(explorer.RefusedError, match="heads 4 must divide by kv_heads 3"):
        explorer.run(blueprint)


def test_placements_that_a_residual_is_not_defined_for_are_skipped() -> None:
    found = rows({"layers": 2, "residual": "deepnorm", "explore": {"placement": ["post", "pre"]}})
    assert found[0]["skipped"] is None
    assert "deepnorm" in found[1]["skipped"]
    assert "pre" in found[1]["skipped"]


def test_depth_must_be_written_where_a_component_reads_it() -> None:
    with pytest.raises(explorer.RefusedError, match="write `layers`"):
        rows({"residual": "deepnorm", "placement": "post"})


def test_partial_baseline_compares_each_row_with_its_counterpart() -> None:
    found = rows(
        {
            "explore": {"norm": ["rmsnorm", "layernorm"], "activation": ["gelu", "swiglu"]},
            "baseline": {"norm": "rmsnorm"},
        }
    )
    by_choice = {tuple(row["choices"].values()): row for row in found}
    for (norm, activation), row in by_choice.items():
        assert row["baseline_id"] == by_choice["rmsnorm", activation]["id"]
        assert row["baseline"] == (norm == "rmsnorm")


def test_equal_numbers_of_different_rows_are_all_shown() -> None:
    """B13: four and eight heads cost the same, and both are rows."""
    found = rows({"dim": 32, "explore": {"heads": [4, 8]}})
    assert len(found) == 2
    assert found[0]["costs"][0]["matmul_flops"] == found[1]["costs"][0]["matmul_flops"]
    assert found[0]["id"] != found[1]["id"]


def test_order_of_loading_changes_nothing() -> None:
    """E7."""
    registry = load_registry()
    reverse = Registry(tuple(reversed(registry.packages)), registry.broken)
    study = {**TOY, "explore": {"norm": ["rmsnorm", "layernorm"], "attention": ["mha", {"gqa": {"kv_heads": 2}}]}}
    first, second = (explorer.run(explorer.load(study, registry=r)).to_dict() for r in (registry, reverse))
    first["environment"].pop("plugins"), second["environment"].pop("plugins")
    assert first == second


def test_ids_do_not_depend_on_the_order_of_axes_or_on_other_values() -> None:
    one = rows({"explore": {"norm": ["rmsnorm", "layernorm"], "activation": ["gelu", "relu"]}})
    two = rows({"explore": {"activation": ["relu", "gelu", "silu"], "norm": ["layernorm", "rmsnorm"]}})
    ids = {frozenset(row["choices"].items()): row["id"] for row in two}
    assert all(ids[frozenset(row["choices"].items())] == row["id"] for row in one)


def test_limit_is_told_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """D12: six axes of ten."""
    for name in ("count_one_by_one", "sweep_rows"):
        monkeypatch.setattr(f"explorer.study.run.{name}", lambda *_: pytest.fail("something was counted"))
    axes = {name: list(range(1, 11)) for name in ("dim", "heads", "head_dim", "layers", "window", "seed")}
    with pytest.raises(explorer.UsageError, match=r"1,000,000 combinations .* limit of 100,000.*--limit 1000000"):
        explorer.run(explorer.load({**TOY, "explore": axes}))


def test_measuring_adds_latency_and_changes_nothing_else() -> None:
    """C7: threads and random state are as before; counts are those of a run that does not measure."""
    blueprint = explorer.load({**TOY, "explore": {"norm": ["rmsnorm", "layernorm"]}})
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    measured = explorer.run(blueprint, measure=True, effort="quick", device="cpu").to_dict()
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    plain = explorer.run(blueprint).to_dict()
    for row, other in zip(measured["combinations"], plain["combinations"], strict=True):
        latency = row["costs"][0]["latency"]
        assert latency["source"] == "measured"
        assert latency["device"]
        assert 0 < latency["low_ms"] <= latency["median_ms"] <= latency["high_ms"]
        row["costs"][0] |= {"latency": None, "latencies": []}
        assert row == other
    assert measured["environment"]["measured_on"]["threads"] == threads


def test_progress_counts_every_row() -> None:
    seen: list[tuple[str, int, int]] = []
    rows({"explore": {"norm": ["rmsnorm", "layernorm"]}}, on_progress=lambda *step: seen.append(step))
    assert ("counting", 2, 2) in seen
    assert seen[-1] == ("tracing whole rows", 2, 2)


def test_several_stacks_name_their_blocks() -> None:
    (row,) = rows({"encoder": {"layers": 1}, "decoder": {"layers": 2}, "vocab": 10})
    assert [(b["name"], b["layers"]) for b in row["params"]["blocks"]] == [("encoder.block", 1), ("decoder.block", 2)]
    assert [cost["name"] for cost in row["costs"]] == ["encoder.block", "decoder.block", "model"]
    assert row["params"]["block"] is None


def test_a_block_is_no_model_unless_layers_or_vocab_is_written() -> None:
    (block,), (model,) = rows({}), rows({"layers": 1})
    assert [cost["scope"] for cost in block["costs"]] == ["block"]
    assert [cost["scope"] for cost in model["costs"]] == ["block", "model"]
    assert block["params"]["model"] is None
    assert model["params"]["model"] == model["params"]["block"] + 16
