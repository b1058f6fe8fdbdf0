"""Counts of whole plans: the walk over distinct layers equals a trace of the whole model, and the closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import explorer
from explorer.assembly.build import build_model
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.ledger.trace import Trace
from explorer.registry.loading import load_registry

PLUGIN = str(Path(__file__).parents[1] / "fixtures" / "wide_residuals.py")
BASE: dict[str, Any] = {"dim": 32, "heads": 4, "vocab": 50, "layers": 4, "feedforward": {"dense": {"hidden": 48}}}
STACKS = {"encoder": {"layers": 2}, "decoder": {"layers": 3}}

MODELS: dict[str, dict[str, Any]] = {
    "decoder": {},
    "windows": {
        "blocks": {"local": {"window": 3}, "global": {}},
        "layers": {"pattern": ["local", "global"], "count": 5},
        "attention": {"gqa": {"kv_heads": 2}},
    },
    "parallel, tied": {"layout": {"parallel": {"shared_norm": False}}, "tie_embeddings": True, "bias": True},
    "deepnorm": {"residual": "deepnorm", "placement": "post"},
    "encoder-decoder": {**STACKS, "position": "sinusoidal"},
    "learned positions": {"position": {"learned": {"max_tokens": 20}}, "norm": "layernorm"},
    "no vocabulary": {"vocab": None},
    "streams": {"residual": "streams"},
    "streams in two stacks": {**STACKS, "residual": "streams"},
    "state that grows": {"residual": "remembers"},
    "layers that share": {"feedforward": "first_projects"},
    "qk norm": {"attention": {"mha": {"qk_norm": "rmsnorm", "softcap": 50}}, "head": {"lm": {"bias": True}}},
}
WORKLOADS = {
    "prefill": Workload("prefill", 2, 6, dtype="float32"),
    "later prefill": Workload("prefill", 2, 4, 10, dtype="float32"),
    "decode": Workload("decode", 2, context=9, dtype="float32"),
    "first decode": Workload("decode", 2, context=1, dtype="float32"),
    "train": Workload("train", 2, 6, dtype="float32"),
}


def plan_of(fields: dict[str, Any]) -> Any:
    return explorer.load({**BASE, **fields}, registry=load_registry((PLUGIN,))).plan()


def whole(plan: Any, workload: Workload) -> tuple[Any, int]:
    """The same numbers from one trace of the whole model, and the cache it leaves."""
    full = workload.settled(encoder=plan.encoder is not None)
    train = full.phase == "train"
    model = build_model(plan, device="meta", dtype=torch.float32).train(train)

    def tokens(n: int) -> torch.Tensor:
        if plan.vocab is None:
            return torch.zeros(full.batch, n, plan.dim, device="meta", requires_grad=train)
        return torch.zeros(full.batch, n, dtype=torch.int64, device="meta")

    source = None if plan.encoder is None else tokens(full.source)
    cache = None if train else model.make_cache(full.batch, full.context + 1, torch.float32, "meta")
    held = full.context - full.tokens
    with torch.set_grad_enabled(train):
        if cache is not None and (held or full.phase == "decode"):
            empty = cache.timing_mark()
            model(tokens(max(held, 1)), source, cache=cache)
            if not held:
                empty()
        with Trace() as trace:
            out = model(tokens(full.tokens), None if full.phase == "decode" else source, cache=cache)
            if train:
                out.backward(torch.empty_like(out))
    return trace.totals(), 0 if cache is None else cache.nbytes()


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("name", MODELS)
def test_sum_over_layers_equals_the_whole_model(name: str, workload: str) -> None:
    plan = plan_of(MODELS[name])
    *_, model = count(plan, [WORKLOADS[workload]]).costs
    counts, cache = whole(plan, WORKLOADS[workload])
    assert model.scope == "model"
    assert (model.matmul_flops, model.matmul_flops_exact) == (counts.matmul_flops, counts.matmul_flops_exact)
    assert model.incomplete == counts.incomplete == ()
    assert model.kv.cache == cache


@pytest.mark.parametrize("name", MODELS)
def test_a_dense_model_uses_all_its_parameters(name: str) -> None:
    params = count(plan_of(MODELS[name]), []).params
    model = build_model(plan_of(MODELS[name]), device="meta")
    assert params.model == sum(parameter.numel() for parameter in model.parameters())
    if name == "layers that share":
        # Three of four layers never touch their projection.
        assert params.active == params.model - 3 * 32 * 32
    else:
        assert params.active == params.model


def test_closed_form_of_a_llama() -> None:
    """T (L 2 (2 d h k + 2 d g k + 3 d f) + 2 d V) + L 4 T^2 h k; exact: T (T + 1) / 2 pairs in the core."""
    d, h, g, k, f, L, V, T = 32, 4, 2, 8, 48, 4, 50, 6
    plan = plan_of({"attention": {"gqa": {"kv_heads": g}}})
    *_, cost = count(plan, [Workload("prefill", 1, T, dtype="float32")]).costs
    linear = T * (L * 2 * (2 * d * h * k + 2 * d * g * k + 3 * d * f) + 2 * d * V)
    assert cost.matmul_flops == linear + L * 4 * T * T * h * k
    assert cost.matmul_flops_exact == linear + L * 4 * (T * (T + 1) // 2) * h * k
    assert cost.kv.per_token == L * 2 * g * k * 4
    assert cost.kv.cache == T * L * 2 * g * k * 4


def test_doubling_tokens_doubles_projections_and_quadruples_the_core() -> None:
    def flops(tokens: int, **fields: Any) -> int:
        plan = plan_of({"vocab": None, "layers": 1, **fields})
        return count(plan, [Workload("prefill", 1, tokens)]).costs[0].matmul_flops or 0

    core_only = {"feedforward": "none"}
    assert flops(16, attention="none") == 2 * flops(8, attention="none")
    projections = 2 * 8 * 4 * 32 * 32
    assert flops(16, **core_only) - 2 * projections == 4 * (flops(8, **core_only) - projections)


def test_cache_and_weights_follow_their_dtypes() -> None:
    workload = Workload("decode", 2, context=9, dtype="float32", kv_dtype="float8_e4m3fn", weight_dtype="bfloat16")
    *_, cost = count(plan_of({}), [workload]).costs
    assert cost.kv.per_token == 4 * 2 * 32
    assert cost.kv.cache == 2 * 9 * 4 * 2 * 32
    assert cost.weight_bytes == 2 * count(plan_of({}), []).params.model


def test_windows_open_and_full() -> None:
    """Five layers, three of them with a window of 3: they stop growing, and hold three tokens."""
    plan = plan_of(MODELS["windows"])
    *_, cost = count(plan, [Workload("decode", 1, context=9, dtype="float32")]).costs
    per_layer = 2 * 2 * 8 * 4
    assert (cost.kv.per_token, cost.kv.per_token_full) == (5 * per_layer, 2 * per_layer)
    assert cost.kv.cache == per_layer * (3 * 3 + 2 * 9)


def test_an_encoder_and_a_bidirectional_stack_cache_nothing() -> None:
    costs = {
        cost.name: cost for cost in count(plan_of(MODELS["encoder-decoder"]), [Workload("decode", context=5)]).costs
    }
    assert costs["encoder.block"].kv.cache == costs["encoder.block"].matmul_flops == 0
    # Three decoder layers: five tokens of their own, five of the source.
    assert costs["decoder.block"].kv.cache == 2 * 32 * 2 * (5 + 5)
    assert costs["model"].kv.per_token == 3 * 2 * 32 * 2
    bert = plan_of({"causal": False})
    assert count(bert, [Workload("prefill", tokens=5)]).costs[-1].kv.cache == 0
    with pytest.raises(explorer.RefusedError, match="causal"):
        count(bert, [Workload("decode", context=5)])


def test_a_forward_that_needs_values_is_unknown_with_the_reason() -> None:
    """A loop over data cannot run on meta: parameters are still counted, products are not 0."""
    document = {"dim": 8, "heads": 1, "attention": "none", "feedforward": "loops"}
    plan = explorer.load(document, registry=load_registry((str(LOOPS),))).plan()
    counted = count(plan, [Workload("prefill", tokens=3)])
    assert counted.params.blocks[0].params == 2 * 8 * 8 + 8
    (cost,) = counted.costs
    assert cost.matmul_flops is None
    assert "needs values" in cost.notes[0]
    assert "loops_over_data.py:" in cost.notes[0]


LOOPS = Path(__file__).parents[1] / "fixtures" / "loops_over_data.py"
