"""Public bug reports about counts (A, B cases), through the command line's JSON: mostly blocks with nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from explorer.cli.app import app

PLUGIN = str(Path(__file__).parents[1] / "fixtures" / "bare_operators.py")
NOTHING = {
    "norm": "none",
    "placement": "none",
    "residual": "none",
    "position": "none",
    "attention": "none",
    "feedforward": "none",
}


def told(document: dict[str, Any], *options: str) -> dict[str, Any]:
    """What `explorer run - -p PLUGIN --format json` prints for a blueprint."""
    words = ["run", "-", "-p", PLUGIN, "--format", "json", "--audit", "0", *options]
    result = CliRunner().invoke(app, words, input=yaml.safe_dump(document), prog_name="explorer")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def bare(*, batch: int = 1, tokens: int = 10, **fields: Any) -> dict[str, Any]:
    """The first row of a blueprint that holds the given fields and nothing else."""
    source = fields.pop("source", None)
    workload = {"batch": batch, "tokens": tokens} | ({"source": source} if source else {})
    workload |= {key: fields.pop(key) for key in ("phase", "context") if key in fields}
    (row,) = told({"dim": 64, "heads": 1, **NOTHING, "workloads": [workload], **fields})["combinations"]
    return row


def flops(row: dict[str, Any], name: str = "block") -> tuple[int, int]:
    (cost,) = [cost for cost in row["costs"] if cost["name"] == name]
    assert cost["incomplete"] == []
    return cost["matmul_flops"], cost["matmul_flops_exact"]


LLAMA_LIKE = {"norm": "rmsnorm", "placement": "pre", "residual": "add", "position": "rope", "causal": True}

PARAMS = {
    "A2 one activation object in several blocks": (120, {"dim": 4, "feedforward": "shared_relu"}),
    "A4 smaller key and value projections": (
        557_568,
        {
            **LLAMA_LIKE,
            "dim": 256,
            "heads": 8,
            "attention": {"gqa": {"kv_heads": 2}},
            "feedforward": {"dense": {"hidden": 512}},
        },
    ),
    "A4 at full size": (
        855_654_400,
        {
            **LLAMA_LIKE,
            "dim": 8192,
            "heads": 64,
            "attention": {"gqa": {"kv_heads": 8}},
            "feedforward": {"dense": {"hidden": 28672}},
        },
    ),
    "A5 head_dim is not dim / heads": (
        92_416,
        {
            **LLAMA_LIKE,
            "dim": 96,
            "heads": 4,
            "head_dim": 32,
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": "rmsnorm"}},
            "feedforward": {"dense": {"hidden": 192}},
        },
    ),
    "A8 gated: three matrices": (
        393_216,
        {"dim": 256, "feedforward": {"dense": {"hidden": 512}}, "activation": "swiglu"},
    ),
    "A8 plain: two matrices": (262_144, {"dim": 256, "feedforward": {"dense": {"hidden": 512}}, "activation": "gelu"}),
    "A8 at full size": (
        872_456_192,
        {
            **LLAMA_LIKE,
            "dim": 8192,
            "heads": 64,
            "attention": {"mha": {"bias": "qkv"}},
            "feedforward": {"dense": {"hidden": 24576}},
        },
    ),
    "D4 narrower heads": (38_400, {"dim": 100, "heads": 12, "head_dim": 8, "attention": "mha"}),
    "D4 wider heads": (76_800, {"dim": 100, "heads": 12, "head_dim": 16, "attention": "mha"}),
    "D6 8/3 rounded up": (
        2_359_296,
        {"dim": 512, "feedforward": {"dense": {"hidden": {"ratio": "8/3", "multiple_of": 256}}}},
    ),
    "D6 8/3 rounded down": (2_096_640, {"dim": 512, "feedforward": {"dense": {"hidden": {"ratio": "8/3"}}}}),
    "D6 plain 4x": (2_097_152, {"dim": 512, "activation": "gelu", "feedforward": {"dense": {"hidden": {"ratio": 4}}}}),
    "B9 one module called three times": (10_100, {"dim": 300, "feedforward": "three_calls"}),
    "B13 four heads": (804_608, {"dim": 448, "heads": 4, "attention": "mha", "bias": True}),
    "B13 eight heads": (804_608, {"dim": 448, "heads": 8, "attention": "mha", "bias": True}),
}


@pytest.mark.parametrize("case", PARAMS)
def test_parameters(case: str) -> None:
    expected, fields = PARAMS[case]
    row = bare(**fields)
    assert row["params"]["block"] == expected
    assert row["params"]["active"] == expected


MIXTURES = {"with a shared expert": (1, 221_696, 74_240), "without": (0, 197_120, 49_664)}


@pytest.mark.parametrize("case", MIXTURES)
def test_active_parameters_of_a_mixture(case: str) -> None:
    """A7: 8 experts of 3 x 64 x 128, of which a token uses 2, and a router of 64 x 8."""
    shared, total, active = MIXTURES[case]
    experts = {"moe": {"experts": 8, "top_k": 2, "hidden": 128, "shared": shared}}
    params = bare(feedforward=experts, activation="swiglu")["params"]
    assert (params["block"], params["active"], params["active_reason"]) == (total, active, None)


DENSE = {
    "B1 fused core": (12_582_912, {"dim": 768, "heads": 12, "tokens": 64, "attention": "core"}),
    "B1 written out": (12_582_912, {"dim": 768, "heads": 12, "tokens": 64, "attention": {"core": {"fused": False}}}),
    "B4 full square": (1_048_576, {"tokens": 64, "attention": "core"}),
    "B6 keys of 48, values of 32": (
        163_840 + 3_604_480,
        {
            "dim": 256,
            "heads": 4,
            "tokens": 16,
            "causal": False,
            "attention": {"mla": {"q_rank": 96, "kv_rank": 64, "nope_dim": 32, "rope_dim": 16, "value_dim": 32}},
        },
    ),
    "B7 multiply-add is two": (81_920, {"feedforward": "one_linear"}),
    "B9 calls count": (60_000, {"dim": 300, "tokens": 1, "feedforward": "three_calls"}),
    **{
        f"B10 {core}": (1_187_840, {"batch": 2, "tokens": 20, "attention": {"spelled": {"core": core}}})
        for core in ("at", "bmm", "einsum", "sdpa")
    },
    "B12 long input": (2 * 2 * 369_098_752, {"tokens": 22528, "feedforward": "wider"}),
    "B12 batch of four": (327_680, {"batch": 4, "feedforward": "one_linear"}),
    "B12 attention at 128": (8_388_608, {"tokens": 128, "heads": 4, "attention": "mha"}),
    "B12 attention at 256": (25_165_824, {"tokens": 256, "heads": 4, "attention": "mha"}),
    "B13 four heads": (642_969_600, {"dim": 448, "tokens": 300, "heads": 4, "attention": "mha", "bias": True}),
    "B13 eight heads": (642_969_600, {"dim": 448, "tokens": 300, "heads": 8, "attention": "mha", "bias": True}),
}


@pytest.mark.parametrize("case", DENSE)
def test_dense_flops(case: str) -> None:
    expected, fields = DENSE[case]
    assert flops(bare(**fields))[0] == expected


EXACT = {
    "B4 triangle": (1_048_576, 532_480, {"tokens": 64}),
    "window": (1_048_576, 123_904, {"tokens": 64, "window": 8}),
    "B4 cached keys, bottom-right": (
        1920,
        1632,
        {"tokens": 4, "context": 10, "attention": {"attended": {"key_dim": 8, "value_dim": 16}}},
    ),
}


@pytest.mark.parametrize("case", EXACT)
def test_exact_flops(case: str) -> None:
    dense, exact, fields = EXACT[case]
    core = {"attention": {"attended": {"key_dim": 64, "value_dim": 64}}, "causal": True}
    assert flops(bare(**(core | fields))) == (dense, exact)


def test_cross_attention_with_its_own_source_length() -> None:
    """B3: B=2, T=10, S=25; a decoder block that holds nothing but cross-attention."""
    decoder = {"cross_attention": "mha"}
    row = bare(batch=2, tokens=10, source=25, heads=4, encoder={}, decoder=decoder)
    assert flops(row, "decoder.block")[0] == 2 * (2 * 2 * 10 * 64**2 + 2 * 2 * 25 * 64**2) + 4 * 2 * 10 * 25 * 64
    assert flops(row, "decoder.block")[0] == 1_274_880
    (cost,) = [cost for cost in row["costs"] if cost["name"] == "decoder.block"]
    assert (cost["workload"]["tokens"], cost["workload"]["source"]) == (10, 25)


@pytest.mark.parametrize(("tie", "total", "shared"), [(True, 64_000, 64_000), (False, 128_000, 0)])
def test_tied_tables_count_once(tie: bool, total: int, shared: int) -> None:
    """A1: 1000 tokens of width 64."""
    row = bare(vocab=1000, tie_embeddings=tie, final_norm="none")
    assert (row["params"]["model"], row["params"]["shared"], row["params"]["active"]) == (total, shared, total)


def test_train_is_forward_and_backward_of_every_product() -> None:
    """Three products per Linear whose input needs a gradient: counted, not assumed."""
    assert flops(bare(feedforward="one_linear", phase="train"))[0] == 3 * 81_920


def test_an_operator_without_a_rule_is_named_and_never_a_silent_zero() -> None:
    """B1: with its calls, next to what is counted."""
    (cost,) = bare(feedforward="uncounted")["costs"]
    assert cost["incomplete"] == ["explorer_public_cases::twice x2"]
    assert cost["matmul_flops"] == 2 * 10 * 64 * 64


@pytest.mark.parametrize("fused", [True, False])
def test_a_cpu_counter_is_held_against_ours(fused: bool) -> None:
    """B1: FlopCounterMode says 0 for a fused core on a CPU, and the cross-check says why."""
    core = {"attention": {"core": {"fused": fused}}, "dim": 768, "heads": 12, "workloads": [{"tokens": 64}]}
    (row,) = told({**NOTHING, **core}, "--crosscheck")["combinations"]
    (check,) = row["crosscheck"]
    tools = {tool["tool"]: tool for tool in check["tools"] if tool["quantity"] == "matmul_flops"}
    assert tools["FlopCounterMode, meta"]["printed"] == 12_582_912
    assert tools["FlopCounterMode, CPU"]["printed"] == (0 if fused else 12_582_912)
    assert {tool["ours"] for tool in tools.values()} == {12_582_912}
    assert all(tool["explained"] for tool in tools.values())


def test_units_of_other_counters_are_told() -> None:
    """B7: 40,960 MAC, 81,920 FLOP and 4,096 mult-adds are one Linear."""
    document = {"dim": 64, "heads": 1, **NOTHING, "feedforward": "one_linear", "workloads": [{"tokens": 10}]}
    (row,) = told(document, "--crosscheck")["combinations"]
    tools = {tool["tool"]: tool for tool in row["crosscheck"][0]["tools"] if tool["quantity"] == "matmul_flops"}
    said = {
        name: (tools[name]["printed"], tools[name]["unit"]) for name in ("fvcore", "FlopCounterMode, CPU", "torchinfo")
    }
    assert said == {
        "fvcore": (40_960, "MAC"),
        "FlopCounterMode, CPU": (81_920, "FLOP"),
        "torchinfo": (4_096, "mult-add"),
    }


def test_both_counts_of_a_causal_core_stand_side_by_side() -> None:
    """B4: with how many keys and queries there are."""
    core = {"attention": {"attended": {"key_dim": 8, "value_dim": 16}}}
    (cost,) = bare(tokens=4, context=10, causal=True, **core)["costs"]
    assert (cost["matmul_flops"], cost["matmul_flops_exact"]) == (1920, 1632)
    assert (cost["workload"]["tokens"], cost["workload"]["context"]) == (4, 10)


def test_kinds_of_part_add_up_to_the_whole() -> None:
    """B9: calls count, however a module is registered."""
    (cost,) = bare(dim=300, tokens=1, feedforward="three_calls")["costs"]
    assert {kind: found["matmul_flops"] for kind, found in cost["breakdown"].items()} == {"feedforward": 60_000}


def test_rows_that_cost_the_same_stay_apart() -> None:
    """B13: heads alone change neither parameters nor products."""
    fields = {"dim": 448, "attention": "mha", "bias": True, "workloads": [{"tokens": 300}]}
    document = told({**NOTHING, "heads": 4, **fields, "explore": {"heads": [4, 8]}})
    assert document["counts"] == {"product": 2, "rows": 2, "skipped": 0, "merged": 0}
    assert [row["params"]["block"] for row in document["combinations"]] == [804_608] * 2
    assert [flops(row)[0] for row in document["combinations"]] == [642_969_600] * 2
