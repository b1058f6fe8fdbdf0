"""Weights, parameters and FLOPs of a mixture of experts: closed forms, published blocks, and public case A7."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from explorer.cost.ledger.trace import Trace
from tests.plugins.mixtures import DIM, EXPERTS, HIDDEN, SIZES, TOP_K, made, mixture, row, x

PARAMETERS = {  # d, what is written, other fields, the closed form, a published block, its attention and norms
    "mixtral-8x7b": (
        4096,
        {"experts": 8, "top_k": 2, "hidden": 14336},
        {},
        4096 * 8 + 3 * 4096 * 14336 * 8,
        1_451_270_144,
        2 * 4096 * (32 + 8) * 128 + 2 * 4096,
    ),
    "qwen3-30b-a3b": (
        2048,
        {"experts": 128, "top_k": 8, "hidden": 768},
        {},
        2048 * 128 + 3 * 2048 * 768 * 128,
        623_120_640,
        2 * 2048 * (32 + 4) * 128 + 2 * 128 + 2 * 2048,
    ),
    "deepseek-v3": (
        7168,
        {"experts": 256, "top_k": 8, "hidden": 2048, "shared": 1, "router": "sigmoid", "selection_bias": True},
        {},
        7168 * 256 + 3 * 7168 * 2048 * (256 + 1),
        11_507_286_016,
        187_107_328 + 2 * 7168,
    ),
    "gpt-oss-20b": (
        2880,
        {"experts": 32, "top_k": 4, "hidden": 2880},
        {"bias": True},
        2880 * 32 + 32 + 32 * (3 * 2880**2 + 3 * 2880),
        823_186_976,
        2 * 2880 * (64 + 8) * 64 + (64 + 2 * 8) * 64 + 2880 + 64 + 2 * 2880,
    ),
    "qwen3-next-80b-a3b": (
        2048,
        {"experts": 512, "top_k": 10, "hidden": 512, "shared": 1, "shared_gate": True},
        {},
        2048 * 512 + 3 * 2048 * 512 * (512 + 1) + 2048,
        1_642_076_672,
        2048 * (3 * 16 + 2 * 2) * 256 + 2 * 256 + 2 * 2048,
    ),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_published_models(name: str) -> None:
    dim, parameters, fields, wanted, block, rest = PARAMETERS[name]
    ours = mixture(made(parameters, device="meta", dim=dim, **fields))
    assert sum(p.numel() for p in ours.parameters()) == wanted == block - rest


def test_hidden_may_be_a_ratio_of_dim() -> None:
    ours = mixture(made({**SIZES, "hidden": {"ratio": "1/4"}, "shared": 3, "shared_hidden": {"ratio": 2}}))
    assert (ours.experts.down.shape, ours.shared.expert.down.in_features) == ((EXPERTS, DIM, 4), 3 * 2 * DIM)


def test_branch_weights_are_views_of_each_experts_matrices() -> None:
    ours = mixture(made({**SIZES, "shared": 2}))
    weights = ours.branch_weights()
    assert weights["value"] == []
    assert [tuple(w.shape) for w in weights["input"]] == [(HIDDEN, DIM)] * 2 * EXPERTS + [(2 * HIDDEN, DIM)] * 2
    assert [tuple(w.shape) for w in weights["output"]] == [(DIM, HIDDEN)] * EXPERTS + [(DIM, 2 * HIDDEN)]
    with torch.no_grad():
        for weight in (*weights["input"], *weights["output"]):
            weight.zero_()
    assert not any(p.any() for p in (ours.experts.up, ours.experts.down, *ours.shared.parameters()))
    assert ours.router.linear.weight.any()


def test_experts_start_as_linear_maps_do() -> None:
    """U(-a, a) with a = 1 / sqrt(inputs), each expert on its own fans."""
    torch.manual_seed(0)
    ours = mixture(made({**SIZES, "experts": 64}, bias=True)).experts
    for weight, bias in ((ours.up, ours.up_bias), (ours.down, ours.down_bias)):
        bound = weight.shape[-1] ** -0.5
        for values in (weight, bias):
            assert 0.99 * bound < float(values.detach().abs().max()) <= bound
            torch.testing.assert_close(float(values.detach().std()), bound / 3**0.5, rtol=0.05, atol=0)


INITS = {
    "xavier": ("xavier", (6 / (DIM + 2 * HIDDEN) / 3) ** 0.5, (6 / (HIDDEN + DIM) / 3) ** 0.5),
    "normal": ({"normal": {"std": 0.02}}, 0.02, 0.02),
    "normal by depth": ({"normal": {"std": 0.02, "output": "depth"}}, 0.02, 0.02 / 4**0.5),
}


@pytest.mark.parametrize("name", INITS)
def test_an_initialisation_reaches_every_expert(name: str) -> None:
    init, up, down = INITS[name]
    ours = mixture(made({**SIZES, "experts": 64}, bias=True, init=init, layers=2)).experts
    torch.testing.assert_close(float(ours.up.detach().std()), up, rtol=0.05, atol=0)
    torch.testing.assert_close(float(ours.down.detach().std()), down, rtol=0.05, atol=0)
    assert not ours.up_bias.any()
    assert not ours.down_bias.any()


def test_deepnorm_scales_experts_by_their_own_fans() -> None:
    ours = mixture(made({**SIZES, "experts": 64}, residual="deepnorm", placement="post", layers=2))
    beta = (8 * 2) ** -0.25
    for weight, fans in ((ours.experts.up, HIDDEN + DIM), (ours.experts.down, HIDDEN + DIM)):
        torch.testing.assert_close(float(weight.detach().std()), beta * (2 / fans) ** 0.5, rtol=0.05, atol=0)


A7 = {"experts": 8, "top_k": 2, "hidden": 128}


@pytest.mark.parametrize(("shared", "total", "active"), [(1, 221_696, 74_240), (0, 197_120, 49_664)])
def test_a7_total_against_active(shared: int, total: int, active: int) -> None:
    params = row({**A7, "shared": shared})["params"]
    assert (params["block"], params["active"]) == (total, active)


ACTIVE = {  # what one token uses beside A7's 49,664
    "biases: the router's and those of two experts": ({}, {"bias": True}, 8 + 2 * (2 * 128 + 64)),
    "a gate of the shared expert": ({"shared": 2, "shared_gate": True}, {}, 2 * 3 * 64 * 128 + 64),
    "a selection bias is no parameter": ({"selection_bias": True, "router": "sigmoid"}, {}, 0),
    "a table is no parameter (the two of the vocabulary are)": ({"select": "token"}, {"vocab": 30}, 2 * 30 * 64),
    "groups": ({"groups": 4, "top_groups": 2}, {}, 0),
}


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters(name: str) -> None:
    changes, fields, more = ACTIVE[name]
    assert row({**A7, **changes}, **fields)["params"]["active"] == 49_664 + more


@pytest.mark.parametrize(("phase", "passes"), [("prefill", 1), ("train", 3)])
@pytest.mark.parametrize("changes", [{}, {"shared": 2}, {"shared": 1, "shared_gate": True, "selection_bias": True}])
def test_flops_are_those_of_the_chosen_experts(changes: dict[str, Any], phase: str, passes: int) -> None:
    """2dE + 6dfK + 6df_s a token, and 2d for a gate."""
    combination = row({**A7, **changes}, phase=phase)
    (cost,) = combination["costs"]
    shared = changes.get("shared", 0)
    token = 2 * 64 * 8 + 6 * 64 * 128 * 2 + 6 * 64 * 128 * shared + 2 * 64 * bool(changes.get("shared_gate"))
    assert (cost["matmul_flops"], cost["incomplete"]) == (passes * 2 * 10 * token, [])
    assert cost["matmul_flops_exact"] == cost["matmul_flops"]


def test_flops_do_not_vary_with_the_routing() -> None:
    counted = set()
    for seed in range(4):
        block = made(SIZES, seed=seed)
        with Trace() as trace:
            block(x()).sum().backward()
        counted.add((trace.totals().matmul_flops, trace.totals().incomplete))
    # Backward of the first product needs no gradient of x: no third of it.
    token = 2 * DIM * EXPERTS + 6 * DIM * HIDDEN * TOP_K
    first = 2 * DIM * EXPERTS + 4 * DIM * HIDDEN * TOP_K
    assert counted == {(10 * (3 * token - first), ())}
