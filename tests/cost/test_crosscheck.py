"""What other counters print: the public bug reports, and each known reason, which explains to the last digit or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.crosscheck.check import crosscheck
from tests.cost.crosschecked import (
    BLOCK,
    CPU,
    FVCORE,
    HANDLED,
    META,
    PAPERS,
    TORCHINFO,
    bare,
    checked,
    prefill,
    printed,
    told,
)

PUBLIC = {
    "B1 fused": (
        bare(dim=768, heads=12, attention="core"),
        prefill(64),
        {META: 12_582_912, CPU: 0, FVCORE: 0, HANDLED: 6_291_456, TORCHINFO: 0, PAPERS: None},
    ),
    "B1 written out": (
        bare(dim=768, heads=12, attention={"core": {"fused": False}}),
        prefill(64),
        {META: 12_582_912, CPU: 12_582_912, FVCORE: 6_291_456, HANDLED: 6_291_456, TORCHINFO: 0, PAPERS: None},
    ),
    "B6 latent": (
        bare(
            dim=256,
            heads=4,
            causal=False,
            attention={"mla": {"q_rank": 96, "kv_rank": 64, "rope_dim": 16, "nope_dim": 32, "value_dim": 32}},
        ),
        prefill(16),
        {
            META: 163_840 + 3_604_480,
            CPU: 3_604_480,
            FVCORE: 3_604_480 // 2,
            HANDLED: (163_840 + 3_604_480) // 2,
            # Weights once, gains of the two latents' norms too.
            TORCHINFO: 3_604_480 // 2 // 16 + 96 + 64,
            PAPERS: 163_840 + 3_604_480,
        },
    ),
    "B7 one Linear": (
        bare(feedforward="one_linear"),
        prefill(10),
        {META: 81_920, CPU: 81_920, FVCORE: 40_960, HANDLED: 40_960, TORCHINFO: 4_096, PAPERS: None},
    ),
    "B9 three calls": (
        bare(dim=300, feedforward="three_calls"),
        prefill(1),
        {META: 60_000, CPU: 60_000, FVCORE: 30_000, HANDLED: 30_000, TORCHINFO: 30_300, PAPERS: None},
    ),
    **{
        f"B10 {core}": (
            bare(attention={"spelled": {"core": core}}),
            prefill(20, batch=2),
            {META: 1_187_840, CPU: 1_187_840, FVCORE: 593_920, HANDLED: 593_920, TORCHINFO: 0, PAPERS: None},
        )
        for core in ("at", "bmm", "einsum")
    },
    "B10 sdpa": (
        bare(attention={"spelled": {"core": "sdpa"}}),
        prefill(20, batch=2),
        # On the CPU 983,040 where autograd is on; without, torch takes another kernel for three axes.
        {META: 1_187_840, CPU: 1_187_840, FVCORE: 491_520, HANDLED: 593_920, TORCHINFO: 0, PAPERS: None},
    ),
    "B12 long input": (
        bare(feedforward="wider"),
        prefill(22528),
        {
            META: 4 * 369_098_752,
            CPU: 4 * 369_098_752,
            FVCORE: 2 * 369_098_752,
            HANDLED: 2 * 369_098_752,
            TORCHINFO: 2 * 64 * 256,
            PAPERS: None,
        },
    ),
    **{
        f"B13 {heads} heads": (
            bare(dim=448, heads=heads, attention="mha", bias=True, causal=False),
            prefill(300),
            {
                META: 642_969_600,
                CPU: 642_969_600 - 161_280_000,
                FVCORE: 240_844_800,
                HANDLED: 321_484_800,
                TORCHINFO: 804_608,
                PAPERS: 642_969_600,
            },
        )
        for heads in (4, 8)
    },
}


@pytest.mark.parametrize("case", PUBLIC)
def test_public_cases(case: str) -> None:
    fields, workload, numbers = PUBLIC[case]
    check = checked(fields, workload)
    assert printed(check) == numbers
    assert check.unexplained == ()
    assert check.reason is None


@pytest.mark.parametrize("attention", ["mha", "no_cache"])
def test_public_case_b3(attention: str) -> None:
    """B=2, T=10, S=25: torch's own attention too loses its core on the CPU."""
    fields = bare(heads=4, encoder={}, decoder={"cross_attention": attention})
    check = checked(fields, prefill(10, batch=2, source=25), "decoder.block")
    assert told(check, META).printed == 1_274_880
    assert told(check, CPU).printed == 1_146_880
    assert told(check, CPU).gap == -128_000
    assert check.unexplained == ()


@pytest.mark.parametrize(
    ("workload", "widths", "dense", "exact"),
    [(prefill(64), (64, 64), 1_048_576, 532_480), (prefill(4, 10), (8, 16), 1_920, 1_632)],
)
def test_public_case_b4(workload: Workload, widths: tuple[int, int], dense: int, exact: int) -> None:
    attention = {"attended": dict(zip(("key_dim", "value_dim"), widths, strict=True))}
    check = checked(bare(attention=attention, causal=True), workload)
    tool = told(check, META, "matmul_flops_exact")
    assert (tool.printed, tool.ours) == (dense, exact)
    assert {reason.name: reason.amount for reason in tool.reasons} == {"causal mask not used": dense - exact}
    assert tool.explained


def test_a_llama_block() -> None:
    """dim 4096, T 2048: the numbers of the table in the docs, each from the sizes."""
    d, kv, f, tokens = 4096, 1024, 14336, 2048
    fields = {
        "dim": d,
        "heads": 32,
        "layers": 32,
        "vocab": 32000,
        "attention": {"gqa": {"kv_heads": 8}},
        "feedforward": {"dense": {"hidden": f}},
    }
    check = checked(fields, Workload("prefill", 1, tokens))
    weights = 2 * d * d + 2 * d * kv + 3 * d * f
    linear, core = 2 * tokens * weights, 4 * tokens * tokens * d
    assert printed(check) == {
        META: linear + core,
        CPU: linear,
        FVCORE: linear // 2,
        HANDLED: (linear + core) // 2,
        TORCHINFO: weights + 2 * d,
        PAPERS: linear + core,
    }
    assert told(check, PAPERS, "matmul_flops_exact").printed == linear + core * (tokens + 1) // (2 * tokens)
    assert told(check, TORCHINFO, "params").printed == weights + 2 * d
    assert [(r.name, r.amount) for r in told(check, TORCHINFO).reasons] == [
        ("sequence length ignored", 2 * weights - linear),
        ("biases and gains counted", 2 * 2 * d),
        ("products outside of modules not seen", -core),
    ]
    assert check.unexplained == ()


MIXTURE = {"feedforward": {"moe": {"experts": 4, "top_k": 2, "hidden": 16}}}
LATENT = {"attention": {"mla": {"kv_rank": 67, "rope_dim": 4, "nope_dim": 17, "value_dim": 9}}}
KNOWN: dict[str, tuple[dict[str, Any], Workload, str, str]] = {
    "fused attention not counted": ({}, prefill(40), CPU, "matmul_flops"),
    "fused attention not counted, fvcore": ({}, prefill(40), FVCORE, "matmul_flops"),
    "attention as its kernel runs it": ({"attention": {"mha": {"sinks": True}}}, prefill(40), META, "matmul_flops"),
    "attention as its kernel runs it, handles": (
        {"attention": {"mha": {"sinks": True}}},
        prefill(40),
        HANDLED,
        "matmul_flops",
    ),
    "causal mask not used": ({}, prefill(40), META, "matmul_flops_exact"),
    "grouped products not counted": (MIXTURE, prefill(8), META, "matmul_flops"),
    "grouped products not counted, train": (MIXTURE, Workload("train", 2, 8, dtype="float32"), CPU, "matmul_flops"),
    "grouped products not counted, fvcore": (MIXTURE, prefill(8), FVCORE, "matmul_flops"),
    "gradient of grouped convolutions": (
        {"attention": "gated_deltanet"},
        Workload("train", 2, 8, dtype="float32"),
        META,
        "matmul_flops",
    ),
    "aten::baddbmm_ not counted": ({"residual": "attnres", "layers": 3}, prefill(8), META, "matmul_flops"),
    "aten::baddbmm not counted": ({"attention": "gated_deltanet"}, prefill(8), FVCORE, "matmul_flops"),
    "forward only": ({}, Workload("train", 2, 8, dtype="float32"), HANDLED, "matmul_flops"),
    "forward only, torchinfo": ({}, Workload("train", 2, 8, dtype="float32"), TORCHINFO, "matmul_flops"),
    "operations of norms counted": ({"norm": "layernorm"}, prefill(8), FVCORE, "matmul_flops"),
    "operations of norms counted, batch": (
        {"norm": "batchnorm"},
        Workload("train", 2, 8, dtype="float32"),
        FVCORE,
        "matmul_flops",
    ),
    "batch of a product left out": (
        {"residual": {"hyper_connections": {"dynamic": False}}},
        prefill(8),
        FVCORE,
        "matmul_flops",
    ),
    "einsum rounded": (LATENT, Workload("decode", 3, context=200, dtype="float32"), FVCORE, "matmul_flops"),
    "results that nobody reads": ({"attention": "kda"}, prefill(8), HANDLED, "matmul_flops"),
    "sequence length ignored": ({}, prefill(8), TORCHINFO, "matmul_flops"),
    "biases and gains counted": ({"bias": True, "norm": "layernorm"}, prefill(8), TORCHINFO, "matmul_flops"),
    "products outside of modules not seen": (MIXTURE, prefill(8), TORCHINFO, "matmul_flops"),
}


@pytest.mark.parametrize("case", KNOWN)
def test_a_known_reason_explains_to_the_last_digit(case: str) -> None:
    fields, workload, name, quantity = KNOWN[case]
    tool = told(checked({**BLOCK, **fields}, workload), name, quantity)
    reasons = {reason.name: reason.amount for reason in tool.reasons}
    reason = case.split(",")[0]
    assert reasons.get(reason), (reasons, tool.note)
    assert tool.explained
    assert tool.gap == sum(reasons.values())
    for wrong in (-1, 1):
        assert not replace(tool, printed=(tool.printed or 0) + wrong).explained
    without = tuple(one for one in tool.reasons if one.name != reason)
    assert not replace(tool, reasons=without).explained


@pytest.mark.parametrize("off", [-1, 1])
def test_no_reason_explains_a_wrong_count(off: int) -> None:
    """Every tool with a number says so, on dense and exact FLOPs and on parameters."""
    fields = {**BLOCK, "norm": "layernorm", **MIXTURE}
    check = checked(fields, prefill(40), off=off)
    assert len(check.tools) == 9
    assert check.unexplained == check.tools
    entry = check.to_dict()
    assert not any(tool["explained"] for tool in entry["tools"])
    assert all(tool["converted"] - tool["expected"] == -off for tool in entry["tools"])


def test_amounts_are_predicted_from_sizes() -> None:
    """B=2, T=40, d=32: not what is left over."""
    fields = {**BLOCK, "norm": "layernorm", "bias": True}
    check = checked(fields, prefill(40, batch=2))
    core = 4 * 2 * 40 * 40 * 32
    amounts = {(tool.name, tool.quantity): {r.name: r.amount for r in tool.reasons} for tool in check.tools}
    assert amounts[CPU, "matmul_flops"] == {"fused attention not counted": -core}
    assert amounts[META, "matmul_flops_exact"] == {"causal mask not used": core * 39 // 80}
    norms = 2 * 2 * 5 * 2 * 40 * 32
    assert amounts[FVCORE, "matmul_flops"] == {
        "fused attention not counted": -core,
        "operations of norms counted": norms,
    }
    weights, biases = 4 * 32 * 32 + 3 * 32 * 48, 3 * 32 + 32 + 2 * 48 + 32 + 2 * 2 * 32
    assert amounts[TORCHINFO, "matmul_flops"] == {
        "sequence length ignored": 2 * 2 * weights * (1 - 40),
        "biases and gains counted": 2 * 2 * biases,
        "products outside of modules not seen": -core,
    }
    assert amounts[HANDLED, "matmul_flops"] == amounts[PAPERS, "matmul_flops"] == {}


def test_training_is_forward_and_backward() -> None:
    """FlopCounterMode and the closed form see both; each product of a block costs two more in backward."""
    forward, train = (checked(BLOCK, Workload(phase, 2, 12, dtype="float32")) for phase in ("prefill", "train"))
    for tool in (META, PAPERS):
        assert told(train, tool).printed == 3 * (told(forward, tool).printed or 0)
    # torch's CPU kernel has no formula in backward either.
    assert told(train, CPU).gap == 3 * (told(forward, CPU).gap or 0)
    for tool in (FVCORE, HANDLED, TORCHINFO):
        assert told(train, tool).printed == told(forward, tool).printed


BLOCKS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"encoder": {"layers": 1}, "decoder": {"layers": 2}, "position": "t5_bias"},
    "parallel": {"layout": {"parallel": {"shared_norm": False}}, "residual": {"mhc": {"iterations": 2}}},
    "window": {"window": 3, "attention": {"gqa": {"kv_heads": 2}}, "layers": 2},
    "compressed": {"attention": {"csa": {"ratio": 2, "index_top_k": 2}}, "window": 4},
    "hybrid": {
        "blocks": {"state": {"attention": "gated_deltanet"}, "latent": LATENT},
        "layers": ["state", "latent"],
        "residual": {"block_attnres": {"block_size": 1}},
    },
}
STEPS = {
    "prefill": prefill(9, batch=2),
    "later": prefill(3, 9, batch=2),
    "decode": Workload("decode", 2, context=9),
    "train": Workload("train", 2, 9, dtype="float32"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("block", BLOCKS)
def test_every_number_is_explained(block: str, step: str) -> None:
    plan = explorer.load({**BLOCK, "vocab": 50, **BLOCKS[block]}).plan()
    counted = count(plan, [STEPS[step]])
    params = {found.name: found.params for found in counted.params.blocks}
    for cost in counted.costs:
        if cost.scope == "block":
            check = crosscheck(
                plan,
                cost.name,
                cost.workload,
                matmul_flops=cost.matmul_flops,
                exact=cost.matmul_flops_exact,
                params=params[cost.name],
            )
            assert check.unexplained == (), check.unexplained
            idle = cost.name == "encoder.block" and step in ("later", "decode")
            assert (check.tools == ()) == idle
            assert all(tool.printed is not None for tool in check.tools), check.tools


@st.composite
def combinations(draw: st.DrawFn) -> dict[str, Any]:
    def one(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    return {
        **BLOCK,
        "dim": one(16, 24),
        "layers": one(1, 3),
        "vocab": one(None, 30),
        "bias": one(False, True),
        "norm": one("layernorm", "rmsnorm", "batchnorm", "dyt"),
        "placement": one("pre", "sandwich"),
        "position": one("rope", "none", "alibi"),
        "attention": one(
            "mha", "mha_naive", "differential", {"gqa": {"kv_heads": 2, "sinks": True}}, LATENT["attention"]
        ),
        "feedforward": one({"dense": {"hidden": 20}}, MIXTURE["feedforward"]),
        "residual": one("add", "highway", "attnres", "hyper_connections", "deepnorm"),
    }


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fields=combinations(), step=st.sampled_from(sorted(STEPS)))
def test_every_number_of_any_combination_is_explained(fields: dict[str, Any], step: str) -> None:
    fields = {**fields, "dim": 32, "head_dim": 8}
    if fields["residual"] == "deepnorm":
        fields |= {"placement": "post"}
    check = checked(fields, STEPS[step])
    assert check.unexplained == (), check.unexplained
    assert told(check, PAPERS).printed is not None
