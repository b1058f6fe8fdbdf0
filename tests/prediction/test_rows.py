"""Rows of a block: those that its cost sums up, and the calls of its modules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import load
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.ledger.rows import Row, total
from explorer.errors import MeasureError, UsageError
from explorer.prediction.rows import CALL, rows_of
from explorer.registry import load_registry

LOOPS = Path(__file__).parents[1] / "fixtures" / "loops_over_data.py"
SMALL = {"dim": 16, "heads": 4}
BLOCKS: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "gpt": {**SMALL, "norm": "layernorm", "activation": "gelu", "position": "learned", "bias": True},
    "naive": {**SMALL, "attention": "mha_naive"},
    "mhc": {**SMALL, "residual": "mhc"},
    "parallel": {**SMALL, "layout": "parallel", "attention": {"gqa": {"kv_heads": 2}}},
    "moe": {**SMALL, "layers": 3, "feedforward": {"moe": {"experts": 4, "top_k": 2, "hidden": 8}}},
}
WORKLOADS = {
    "decode": Workload("decode", 2, context=9, dtype="float32"),
    "train": Workload("train", 2, 5, dtype="float32"),
}


@pytest.mark.parametrize("phase", WORKLOADS)
@pytest.mark.parametrize("name", BLOCKS)
def test_rows_add_up_to_the_cost_of_the_block(name: str, phase: str) -> None:
    plan = load(BLOCKS[name]).plan()
    cost = next(c for c in count(plan, [WORKLOADS[phase]]).costs if c.scope == "block")
    assert cost.counts is not None
    rows, counts = total(rows_of(plan, "block", WORKLOADS[phase], {})), cost.counts
    found = {key: getattr(rows, key) for key in vars(counts) if key != "fused_bytes"}
    assert found == {key: value for key, value in vars(counts).items() if key != "fused_bytes"}


def ran(extra: Mapping[str, Any], workload: Workload) -> list[Row]:
    attention = {"feedforward": "none", "placement": "none", "position": "none", **extra}
    rows = rows_of(load({**SMALL, **attention}).plan(), "block", workload, {})
    return [row for row in rows if row.kernels]


PROMPT = Workload("prefill", 2, 64, 64, dtype="float32")
QUERIES = 4 * 16 * 2 * 64
"""FLOPs of all heads for one key: 4 of dim, batch and tokens."""


@pytest.mark.parametrize(
    ("extra", "workload", "keys"),
    [
        ({}, PROMPT, 65 / 2),
        ({"window": 8}, PROMPT, None),
        ({}, replace(PROMPT, context=96), None),
        ({"window": 8}, replace(PROMPT, tokens=1, phase="decode"), 8 / 64),
    ],
    ids=["causal", "window", "chunk", "decode in a window"],
)
def test_only_a_rule_that_the_kernel_knows_spares_pairs(
    extra: Mapping[str, Any], workload: Workload, keys: float | None
) -> None:
    """What a mask hides is computed all the same; the mask itself is made, one byte for each pair."""
    (kernel,) = (row for row in ran(extra, workload) if row.kind == "fused")
    assert kernel.op == "scaled_dot_product_attention"
    assert kernel.matmul_flops_exact == (None if keys is None else keys * QUERIES)
    if keys is None:
        assert kernel.matmul_flops == QUERIES * (workload.context or 0)
    masks = [row for row in ran(extra, workload) if row.written.total == 64 * (workload.context or 0)]
    assert bool(masks) == (keys is None)


def test_a_soft_cap_is_written_out() -> None:
    """No kernel knows it: scores of (2, 4, 64, 64) are made, capped, hidden and summed over, one kernel each."""
    rows = ran({"attention": {"mha": {"softcap": 30.0}}}, PROMPT)
    assert not [row for row in rows if row.kind == "fused"]
    scores = 2 * 4 * 64 * 64 * 4
    assert sum(row.written.total == scores for row in rows) >= 5
    assert sum(row.matmul_flops for row in rows if row.op == "aten::bmm") == QUERIES * 64


@pytest.mark.parametrize("name", ["llama", "gpt", "naive"])
def test_a_prefill_alone_fills_no_cache(name: str) -> None:
    """As it is measured; the count of its cost holds the copies into a cache."""
    plan, workload = load(BLOCKS[name]).plan(), Workload("prefill", 2, 5, dtype="float32")
    rows = rows_of(plan, "block", workload, {})
    counts = count(plan, [workload]).costs[0].counts
    assert counts is not None
    assert total(rows).matmul_flops_exact == counts.matmul_flops_exact
    assert [row for row in rows if row.read.cache or row.written.cache] == []
    assert counts.written_cache > 0


@pytest.mark.parametrize(
    ("attention", "gigaflops"), [("mha", 11.274), ("mha_naive", 11.274), ({"gqa": {"kv_heads": 4}}, 8.053)]
)
def test_products_of_the_seeds_attention(attention: Any, gigaflops: float) -> None:
    """(8, 256, 768), 12 heads: 4 (or 2 + 2/3) projections of 2 x 2048 x 768^2, and 4 x 8 x 256^2 x 768 over pairs."""
    plan = load(
        {"dim": 768, "heads": 12, "attention": attention, "feedforward": "none", "placement": "none", "causal": False}
    ).plan()
    rows = rows_of(plan, "block", Workload("prefill", 8, 256, dtype="float32"), {})
    assert total(rows).matmul_flops / 1e9 == pytest.approx(gigaflops, abs=5e-4)


def test_modules_that_are_called_are_rows_without_a_kernel() -> None:
    plan = load({**SMALL, "attention": "none", "norm": "layernorm", "activation": "gelu"}).plan()
    calls = [row for row in rows_of(plan, "block", Workload("prefill", 1, 2), {}) if row.kind == CALL]
    assert Counter(row.op for row in calls)["Linear"] == 2
    assert Counter(row.op for row in calls)["LayerNorm"] == 1
    assert total(calls) == total([])


def test_views_are_there() -> None:
    rows = rows_of(load(SMALL).plan(), "block", Workload("prefill", 1, 2), {})
    assert {"aten::view", "aten::transpose"} <= {row.op for row in rows if row.kind == "view"}


def test_looking_leaves_no_hook_behind() -> None:
    from torch.nn.modules import module

    before = len(module._global_forward_pre_hooks)
    rows_of(load(SMALL).plan(), "block", Workload("prefill", 1, 2), {})
    assert len(module._global_forward_pre_hooks) == before


PAIR = {**SMALL, "encoder": {"layers": 1}, "decoder": {"layers": 1}}


def test_an_encoder_runs_over_the_source_and_not_in_decode() -> None:
    plan = load(PAIR).plan()
    prefill, decode = Workload("prefill", 1, 2, source=7, dtype="float32"), Workload("decode", 1, context=4, source=7)
    assert rows_of(plan, "encoder.block", decode, {}) == []
    ran = total(rows_of(plan, "encoder.block", prefill, {})).matmul_flops
    cost = next(c for c in count(plan, [prefill]).costs if c.name == "encoder.block")
    assert cost.counts is not None
    assert ran == cost.counts.matmul_flops > 0


def test_a_block_that_is_not_there_is_told() -> None:
    with pytest.raises(
        UsageError, match=re.escape("no block is called 'blok'; there are block; did you mean 'block'?")
    ):
        rows_of(load(SMALL).plan(), "blok", Workload(), {})


def test_a_block_stands_alone_as_it_is_measured() -> None:
    """What a residual would read of the layers before it is not there."""
    document = {**SMALL, "layers": 3, "residual": "attnres"}
    plan, workload = load(document).plan(), Workload("decode", 1, context=4, dtype="float32")
    in_model = next(c for c in count(plan, [workload]).costs if c.scope == "block").counts
    assert in_model is not None
    assert 0 < total(rows_of(plan, "block", workload, {})).matmul_flops < in_model.matmul_flops


def test_what_needs_values_is_not_predicted_for_that_reason() -> None:
    plan = load({**SMALL, "feedforward": "loops"}, registry=load_registry((str(LOOPS),))).plan()
    with pytest.raises(
        MeasureError, match=r"not predicted: it needs values and cannot be run on meta: .*loops_over_data"
    ):
        rows_of(plan, "block", Workload("prefill", 1, 4), {})
