"""Rows that are counted all at once are those that are counted one by one, and so are the columns of the table."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import explorer
from explorer.cost.counting import Workbench
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from explorer.study import result as results
from explorer.study import run as running
from explorer.study.large import Table
from explorer.study.one_by_one import count_one_by_one
from explorer.study.swept import Swept, sweep_rows
from tests.cost.documents import BLOCK, KINDS, PHASES, REGISTRY, components, document

FIXTURES = Path(__file__).parents[1] / "fixtures"
LENGTHS = [
    {"tokens": 6, "dtype": "float32"},
    {"phase": "train", "tokens": 6, "dtype": "bfloat16"},
    {"phase": "decode", "context": 9, "kv_dtype": "float32"},
]
TOY: dict[str, Any] = {"dim": 32, "heads": 4, "workloads": LENGTHS}
STUDIES: dict[str, dict[str, Any]] = {
    "a model": {
        "layers": 3,
        "vocab": 50,
        "tie_embeddings": True,
        "explore": {
            "attention": ["mha", {"gqa": {"kv_heads": 2}}, "mla", "differential"],
            "norm": ["rmsnorm", "layernorm", "none"],
            "residual": ["add", "mhc", "attnres", "deepnorm"],
            "placement": ["pre", "post"],
        },
    },
    "blocks alone": {
        "explore": {
            "attention": ["mha", "mla", "linear"],
            "attention.bias": [True, False],
            "placement": ["pre", "sandwich"],
            "position": ["rope", "t5_bias", {"learned": {"max_tokens": 12}}],
            "layout": ["sequential", "parallel"],
        }
    },
    "two stacks": {
        "vocab": 32,
        "encoder": {"layers": 2},
        "decoder": {"layers": 3},
        "explore": {
            "attention": ["mha", "kda"],
            "position": ["t5_bias", "sinusoidal"],
            "cross_attention": [None, "none"],
            "feedforward": ["dense", {"moe": {"experts": 4, "top_k": 2, "hidden": 16}}, "none"],
            "decoder.dropout": [None, {"sublayer": 0.1, "embedding": 0.1}],
        },
    },
    "causal or not": {
        "layers": 2,
        "workloads": LENGTHS[:2],
        "explore": {
            "causal": [True, False],
            "norm": ["rmsnorm", "layernorm"],
            "attention": ["mha", "mla", "linear"],
            "window": [None, 3],
        },
    },
    "uneven layers": {
        "blocks": {"local": {"window": 4}, "global": {}},
        "layers": ["local", "global"],
        "explore": {
            "layers": [["local", "global"], {"pattern": [{"local": 2}, "global"], "count": 5}, 2],
            "blocks.local.attention": ["mha", {"gqa": {"kv_heads": 1}}],
            "residual": ["add", {"block_attnres": {"block_size": 2}}, "hyper_connections"],
            "dim": [32, 64],
        },
    },
}


def swept_and_counted(fields: dict[str, Any], registry: Any = None) -> tuple[Swept, list[dict[str, Any]]]:
    """The rows of a study by arrays, and one by one."""
    blueprint = explorer.load({**TOY, **fields}, registry=registry)
    combinations = blueprint.combinations()
    swept = sweep_rows(blueprint, combinations, None, Workbench(), lambda *_: None)
    alone = count_one_by_one(blueprint, combinations, None, Workbench(), lambda *_: None)
    return swept, [alone.row(index) for index in range(len(combinations.rows))]


@pytest.mark.parametrize("name", STUDIES)
def test_rows_are_those_counted_one_by_one(name: str) -> None:
    swept, rows = swept_and_counted(STUDIES[name])
    assert not swept.apart
    assert [swept.row(index) for index in range(len(rows))] == rows


@pytest.mark.parametrize("name", STUDIES)
def test_columns_are_those_of_the_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FEW", 0)
    blueprint = explorer.load({**TOY, **STUDIES[name]})
    rows = explorer.run(blueprint, audit=0).frame()
    monkeypatch.setattr(running, "MANY", 0)
    monkeypatch.setattr(results, "MANY", 0)
    many = explorer.run(blueprint, audit=0)
    assert many.many
    table = many.frame()
    same = rows.select(table.columns).cast(
        {name: pl.Float64 for name in table.columns if table[name].dtype.is_numeric()}
    )
    table = table.cast({name: pl.Float64 for name in table.columns if table[name].dtype.is_numeric()})
    assert_frame_equal(table, same, check_dtypes=False, categorical_as_str=True)


def test_what_shares_is_counted_by_itself() -> None:
    registry = load_registry((str(FIXTURES / "odd_components.py"),))
    fields = {
        "layers": 3,
        "explore": {"feedforward": ["dense", "albert", "later_reads"], "norm": ["rmsnorm", "layernorm"]},
    }
    swept, rows = swept_and_counted(fields, registry)
    assert len(swept.apart) == 4
    assert [swept.row(index) for index in range(len(rows))] == rows
    frame = pl.concat(list(Table(swept).frames()))
    assert frame.filter(pl.col("scope") == "model")["params"].to_list() == [
        row["params"]["model"] for row in rows for _ in LENGTHS
    ]


def test_broken_and_refused_rows_say_why() -> None:
    registry = load_registry((str(FIXTURES / "odd_components.py"),))
    fields = {
        "explore": {
            "feedforward": ["dense", "raises", "narrow"],
            "attention.kv_heads": [1, 3],
            "attention": [{"gqa": {"kv_heads": 1}}, "mha"],
        }
    }
    swept, rows = swept_and_counted(fields, registry)
    reasons = [row["skipped"] for row in rows]
    assert [swept.reason(row) for row in swept.combinations.rows] == reasons
    assert any("a bug of the lab" in (reason or "") for reason in reasons)


def test_the_first_refusal_is_raised_where_no_row_is_left() -> None:
    fields = {**TOY, "attention": {"gqa": {"kv_heads": 3}}, "explore": {"norm": ["rmsnorm"], "seed": list(range(40))}}
    with pytest.raises(explorer.RefusedError, match="heads 4 must divide by kv_heads 3"):
        explorer.run(fields)


def test_numbers_beyond_64_bits_stay_whole() -> None:
    """A thousand layers of a wide model on a long text."""
    fields = {
        "dim": 2**20, "heads": 2**10, "layers": 1000, "feedforward": {"dense": {"hidden": 2**22}}, "position": "none",
        "workloads": [{"batch": 2**14, "tokens": 2**20}], "explore": {"norm": ["rmsnorm", "layernorm"]},
    }  # fmt: skip
    blueprint = explorer.load(fields)
    swept = sweep_rows(blueprint, blueprint.combinations(), None, Workbench(), lambda *_: None)
    frame = pl.concat(list(Table(swept).frames()))
    model = frame.filter(pl.col("scope") == "model")["matmul_flops"].to_list()
    tokens = 2**34
    layer = tokens * 2 * (4 * 2**40 + 3 * 2**42) + 2**14 * 4 * 2**40 * 2**20
    assert [int(value) for value in model] == [1000 * layer] * 2
    assert 1000 * layer > 2**63


def study_of(random: Random) -> dict[str, Any]:
    """Any blueprint, with some axes of any components and fields."""
    fields = document(random)
    options: dict[str, list[Any]] = {kind: components(kind) for kind in KINDS}
    options |= {name: [value for value in values if value is not None] for name, values in BLOCK.items()}
    options |= {
        "layers": [1, 2, ["a", "b"], ["a", {"b": 2}]],
        "causal": [True, False],
        "heads": [2, 4],
        "dim": [16, 32],
    }
    axes = random.sample(sorted(options), 3)
    return {**fields, "explore": {axis: _some(random, options[axis]) for axis in axes}}


def _some(random: Random, values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in random.sample(values, min(len(values), 3)):
        found += [] if value in found else [value]
    return found


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_any_study(seed: int) -> None:
    random = Random(seed)
    phases = random.sample(sorted(PHASES), 2)
    written = [{"dtype": random.choice(["float32", "bfloat16"]), **PHASES[phase]} for phase in phases]
    fields = {**study_of(random), "workloads": written}
    try:
        swept, rows = swept_and_counted(fields, REGISTRY)
    except (BlueprintError, RefusedError):
        assume(False)
    for index, row in enumerate(rows):
        assert swept.row(index) == row


def test_a_piece_of_skipped_rows_has_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.study import large

    monkeypatch.setattr(large, "ROWS_AT_ONCE", 2)
    fields = {
        **TOY,
        "explore": {"norm": ["rmsnorm", "layernorm"], "bias": [True, False]},
        "skip": [{"norm": "rmsnorm"}],
    }
    blueprint = explorer.load(fields)
    swept = sweep_rows(blueprint, blueprint.combinations(), None, Workbench(), lambda *_: None)
    skipped, counted = Table(swept).frames()
    assert skipped.columns == counted.columns
    together = pl.concat([skipped, counted], how="vertical_relaxed")
    assert together.schema["dtype"] == pl.String
    assert together["skipped"].null_count() == len(counted)


@pytest.mark.parametrize("kind", ["attention", "feedforward", "norm"])
def test_a_component_is_told_apart_by_all_that_its_constructor_may_pick(kind: str) -> None:
    """What stands on a kind's menu comes from these fields of a block; the site is asked for in the flow."""
    from explorer.cost.sweep.cells import FIELDS
    from explorer.registry.kinds import KINDS as ALL

    assert set(ALL[kind].menu) - {"site"} <= set(FIELDS[kind])
