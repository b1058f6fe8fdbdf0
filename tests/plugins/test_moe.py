"""Mixtures of experts against transformers' modules with copied weights, and all experts written out in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    DeepseekV2Config,
    DeepseekV3Config,
    DeepseekV4Config,
    GptOssConfig,
    MixtralConfig,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4SparseMoeBlock
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextSparseMoeBlock

from tests.plugins.mixtures import DIM, EXPERTS, HIDDEN, SIZES, TOP_K, VOCAB, ids, made, mixture, x

# Against transformers ------------------------------------------------------------------------------------------------

Weights = Mapping[str, Tensor]


def plain(theirs: Weights) -> dict[str, Tensor]:
    return {
        "router.linear.weight": theirs["gate.weight"],
        "experts.up": theirs["experts.gate_up_proj"],
        "experts.down": theirs["experts.down_proj"],
    }


def with_shared(theirs: Weights, name: str = "shared_experts") -> dict[str, Tensor]:
    gate, up, down = (theirs[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
    return plain(theirs) | {"shared.expert.up.weight": torch.cat([gate, up]), "shared.expert.down.weight": down}


def with_selection_bias(theirs: Weights) -> dict[str, Tensor]:
    return with_shared(theirs) | {"router.choice.selection_bias": theirs["gate.e_score_correction_bias"]}


def with_table(theirs: Weights) -> dict[str, Tensor]:
    return with_shared(theirs) | {"router.choice.table": theirs["gate.tid2eid"]}


def with_gate(theirs: Weights) -> dict[str, Tensor]:
    return with_shared(theirs, "shared_expert") | {"shared.gate.weight": theirs["shared_expert_gate.weight"]}


def gpt_oss(theirs: Weights) -> dict[str, Tensor]:
    """Gate and up columns in turn there, one behind the other here; (in, out) there, (out, in) here."""

    def apart(w: Tensor) -> Tensor:
        return torch.cat([w[..., 0::2], w[..., 1::2]], -1)

    return {
        "router.linear.weight": theirs["router.weight"],
        "router.linear.bias": theirs["router.bias"],
        "experts.up": apart(theirs["experts.gate_up_proj"]).mT,
        "experts.up_bias": apart(theirs["experts.gate_up_proj_bias"]),
        "experts.down": theirs["experts.down_proj"].mT,
        "experts.down_bias": theirs["experts.down_proj_bias"],
    }


MIXTRAL = {"hidden_size": DIM, "intermediate_size": HIDDEN, "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K}
QWEN = {"hidden_size": DIM, "moe_intermediate_size": HIDDEN, "num_experts": EXPERTS, "num_experts_per_tok": TOP_K}
DEEPSEEK = {
    "hidden_size": DIM,
    "moe_intermediate_size": HIDDEN,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "n_group": 4,
    "topk_group": 2,
}
V4 = {
    "hidden_size": DIM,
    "moe_intermediate_size": HIDDEN,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": TOP_K,
    "routed_scaling_factor": 1.5,
    "vocab_size": VOCAB,
    "num_hidden_layers": 5,
    "swiglu_limit": 1.0,  # low enough to act
}
V4_OURS = {**SIZES, "shared": 1, "router": "sqrt_softplus", "scale": 1.5}
V4_FIELDS = {"activation": {"swiglu_clamped": {"limit": 1.0}}}

CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[Weights], dict[str, Tensor]], dict[str, Any], Any]] = {
    "mixtral": (lambda: MixtralSparseMoeBlock(MixtralConfig(**MIXTRAL)), plain, SIZES, {}),
    "qwen3-moe": (lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=True)), plain, SIZES, {}),
    "qwen3-moe, not renormalised": (
        lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**QWEN, norm_topk_prob=False)),
        plain,
        {**SIZES, "renormalise": False},
        {},
    ),
    "deepseek-v2": (
        lambda: DeepseekV2Moe(
            DeepseekV2Config(
                **DEEPSEEK,
                num_attention_heads=4,
                n_shared_experts=2,
                routed_scaling_factor=16.0,
                topk_method="group_limited_greedy",
            )
        ),
        with_shared,
        {
            **SIZES,
            "shared": 2,
            "renormalise": False,
            "scale": 16,
            "groups": 4,
            "top_groups": 2,
            "group_score": "max",
        },
        {},
    ),
    "deepseek-v3": (
        lambda: DeepseekV3MoE(DeepseekV3Config(**DEEPSEEK, n_shared_experts=1, routed_scaling_factor=2.5)),
        with_selection_bias,
        {
            **SIZES,
            "shared": 1,
            "router": "sigmoid",
            "selection_bias": True,
            "scale": 2.5,
            "groups": 4,
            "top_groups": 2,
        },
        {},
    ),
    "deepseek-v4": (
        lambda: DeepseekV4SparseMoeBlock(DeepseekV4Config(**V4), 4),
        with_selection_bias,
        {**V4_OURS, "selection_bias": True},
        V4_FIELDS,
    ),
    "deepseek-v4, first layers": (
        lambda: DeepseekV4SparseMoeBlock(DeepseekV4Config(**V4), 0),
        with_table,
        {**V4_OURS, "select": "token"},
        V4_FIELDS,
    ),
    "gpt-oss": (
        lambda: GptOssMLP(GptOssConfig(**MIXTRAL)),
        gpt_oss,
        SIZES,
        {"bias": True, "activation": {"swiglu_clamped": {"limit": 7, "alpha": 1.702, "up_offset": 1}}},
    ),
    "qwen3-next": (
        lambda: Qwen3NextSparseMoeBlock(Qwen3NextConfig(**QWEN, shared_expert_intermediate_size=40)),
        with_gate,
        {**SIZES, "shared": 1, "shared_hidden": 40, "shared_gate": True},
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_transformers(name: str) -> None:
    make, translate, parameters, fields = CASES[name]
    theirs = make().eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*theirs.parameters(), *theirs.buffers()):
            # Experts of a table: any, more than once too.
            tensor.copy_(
                torch.randint_like(tensor, EXPERTS) if not tensor.is_floating_point() else torch.randn_like(tensor)
            )
    block = made(parameters, **fields).eval()
    mixture(block).load_state_dict(translate(theirs.state_dict()))
    given = (x(), ids()) if parameters.get("select") == "token" else (x(),)
    wanted = theirs(*given)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    torch.testing.assert_close(block(x(), ids=ids()), wanted, rtol=1e-4, atol=1e-4)


# Against every expert written out ------------------------------------------------------------------------------------

SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gated": (SIZES, {}),
    "plain": (SIZES, {"activation": "gelu"}),
    "biases": (SIZES, {"bias": True}),
    "one expert": ({**SIZES, "experts": 1, "top_k": 1}, {}),
    "all experts": ({**SIZES, "top_k": EXPERTS}, {}),
    "shared": ({**SIZES, "shared": 2, "shared_gate": True}, {"bias": True}),
    "sigmoid in groups": (
        {**SIZES, "router": "sigmoid", "selection_bias": True, "groups": 4, "top_groups": 2, "scale": 2.5},
        {},
    ),
    "by token": ({**SIZES, "select": "token", "router": "sqrt_softplus"}, {"activation": "relu"}),
}
ACTS = {"gelu": F.gelu, "relu": F.relu, "swiglu": lambda gate, up: F.silu(gate) * up}


def feedforward(x: Tensor, up: Tensor, up_bias: Any, down: Tensor, down_bias: Any, act: str) -> Tensor:
    h = F.linear(x, up, up_bias)
    h = ACTS[act](*h.chunk(2, -1)) if act == "swiglu" else ACTS[act](h)
    return F.linear(h, down, down_bias)


def all_experts(ours: Any, x: Tensor, ids: Tensor, act: str) -> Tensor:
    """The same with every expert on every token, weighted with 0 where it was not chosen."""
    flat = x.flatten(0, 1)
    weights, chosen = ours.router(flat, ids)
    weights = torch.zeros(len(flat), len(ours.experts.up), dtype=x.dtype).scatter(1, chosen, weights)
    biases = [[None] * len(ours.experts.up) if b is None else b for b in (ours.experts.up_bias, ours.experts.down_bias)]
    experts = zip(ours.experts.up, biases[0], ours.experts.down, biases[1], strict=True)
    y = torch.stack([feedforward(flat, *expert, act) for expert in experts], 1)
    out = (weights.unsqueeze(-1) * y).sum(1).view_as(x)
    if ours.shared is None:
        return out
    dense = ours.shared.expert
    shared = feedforward(x, dense.up.weight, dense.up.bias, dense.down.weight, dense.down.bias, act)
    return out + torch.sigmoid(x @ ours.shared.gate.weight.T) * shared


def gradients(module: nn.Module, out: Tensor) -> dict[str, Tensor]:
    loss = (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)).sum()
    named = dict(module.named_parameters())
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_output_and_gradients_of_all_experts_written_out(name: str, dtype: torch.dtype) -> None:
    parameters, fields = SETTINGS[name]
    ours, exact = (mixture(made(parameters, **fields)).to(kind) for kind in (dtype, torch.float64))
    exact.load_state_dict(ours.state_dict())
    out = ours(x().to(dtype), ids())
    wanted = all_experts(exact, x().double(), ids(), fields.get("activation", "swiglu"))
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(out.double(), wanted, **close)
    theirs = gradients(exact, wanted)
    for key, gradient in gradients(ours, out).items():
        torch.testing.assert_close(gradient.double(), theirs[key], **close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SETTINGS)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    parameters, fields = SETTINGS[name]
    ours, exact = (mixture(made(parameters, **fields)).to(kind) for kind in (dtype, torch.float64))
    exact.load_state_dict(ours.state_dict())
    out = ours(x().to(dtype), ids())
    assert out.dtype == dtype
    wanted = all_experts(exact, x().to(dtype).double(), ids(), fields.get("activation", "swiglu"))
    torch.testing.assert_close(out.double(), wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_token_stands_alone(name: str) -> None:
    parameters, fields = SETTINGS[name]
    block = made(parameters, **fields).eval()
    out = block(x(), ids=ids())
    for b in range(2):
        for t in range(5):
            one = block(x()[b : b + 1, t : t + 1], ids=ids()[b : b + 1, t : t + 1])
            torch.testing.assert_close(one[0, 0], out[b, t])


@pytest.mark.parametrize("name", ["shared", "sigmoid in groups", "by token"])  # the contract compiles the defaults
def test_compiles_whole(name: str) -> None:
    parameters, fields = SETTINGS[name]
    block = made(parameters, **fields).eval()
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    for shape in ((5, 2), (7, 3), (1, 1)):
        given = x(*shape), ids(*shape)
        torch.testing.assert_close(compiled(given[0], ids=given[1]), block(given[0], ids=given[1]))
    torch.compiler.reset()


def test_no_tokens() -> None:
    assert made(SIZES)(x()[:, :0], ids=ids()[:, :0]).shape == (2, 0, DIM)


def test_dropout_acts_after_the_activation_in_training_only() -> None:
    block = made(SIZES, bias=True, dropout={"activation": 1.0 - 1e-9})
    ours = mixture(block)
    weights, chosen = ours.router(x().flatten(0, 1), None)
    dropped = (weights.unsqueeze(-1) * ours.experts.down_bias[chosen]).sum(1).view(2, 5, DIM)
    torch.testing.assert_close(block(x()), dropped)
    same = made(SIZES, bias=True).eval()
    same.load_state_dict(block.state_dict())
    torch.testing.assert_close(block.eval()(x()), same(x()), rtol=0, atol=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["dense", "moe", "latent_moe"])
def test_runs_under_autocast_as_linear_maps_do(name: str, bias: bool) -> None:
    """Forward and backward: bfloat16 out of a float32 model, near float32, and experts chosen as in float32."""
    mixed = {**SIZES, "shared": 1, "selection_bias": True, "router": "sigmoid"}
    parameters = {"dense": {"hidden": HIDDEN}, "moe": mixed, "latent_moe": {**mixed, "latent": 8}}[name]
    ours = mixture(made(parameters, name=name, bias=bias))
    results = []
    for on in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            out = ours(x())
        assert out.dtype == (torch.bfloat16 if on else torch.float32)
        results.append((out.float(), gradients(ours, out)))
    (wanted, theirs), (came, grads) = results
    torch.testing.assert_close(came, wanted, rtol=0.05, atol=0.05)
    for key, gradient in grads.items():
        assert gradient.dtype == torch.float32
        assert (gradient - theirs[key]).norm() <= 0.05 * theirs[key].norm() + 1e-3, key


def test_compiles_whole_under_autocast() -> None:
    ours = mixture(made({**SIZES, "shared": 1}))
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(x()), ours(x()))
    torch.compiler.reset()
