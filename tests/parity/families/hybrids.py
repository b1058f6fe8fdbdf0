"""Several kinds of attention in one stack: Qwen3-Next, Kimi Linear and DeepSeek-V4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.parity.families.experts import (
    EXPERTS,
    MLA_PLAIN_Q,
    MLA_SIZES,
    SELECTION_BIAS,
    THEIR_MLA,
    V3_EXPERTS,
    moe,
    shared,
)
from tests.parity.families.llama_like import ATTENTION, FEEDFORWARD, QK_NORM, UNTIED, rope, stack
from tests.parity.harness import Family
from tests.parity.weights import From, Names, rows

EPS, KDA_EPS = 1e-6, 1e-5  # those of the norms inside gated_deltanet, csa and hca, and inside kda


def gate_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """q holds [q | gate] for each of four heads."""
    q, gate = (part.flatten(0, 1) for part in q.unflatten(0, (4, 2, -1)).unbind(1))
    return torch.cat([gate, q, k, v])


def by_key_head(qkvz: Tensor, ba: Tensor) -> Tensor:
    """Two key heads hold [q | k | v of two heads | gate of two heads], and [beta | decay] of two heads, each."""
    parts = qkvz.unflatten(0, (2, -1)).split([8, 8, 12, 12], dim=1)
    beta, decay = ba.unflatten(0, (2, -1)).split([2, 2], dim=1)
    return torch.cat([part.flatten(0, 1) for part in (*parts, beta, decay)])


NEXT_EXPERTS = {
    **EXPERTS,
    **shared("mlp.shared_expert"),
    "feedforward.branch.shared.gate": "mlp.shared_expert_gate",
}
GATED_ATTENTION: Names = {
    **ATTENTION,
    **QK_NORM,
    **NEXT_EXPERTS,
    "attention.branch.qkv": From(tuple(f"self_attn.{name}_proj" for name in "qkv"), gate_first),
}
DELTA_NET: Names = {
    **NEXT_EXPERTS,
    "attention.norm": "input_layernorm",
    "attention.branch.inputs.weight": From(
        ("linear_attn.in_proj_qkvz.weight", "linear_attn.in_proj_ba.weight"), by_key_head
    ),
    "attention.branch.conv.conv": "linear_attn.conv1d",
    "attention.branch.decay.a_log": From(("linear_attn.A_log",), lambda rates: rates.unsqueeze(1)),
    "attention.branch.decay.dt": From(("linear_attn.dt_bias",), lambda steps: steps.unsqueeze(1)),
    "attention.branch.norm": "linear_attn.norm",
    "attention.branch.out": "linear_attn.out_proj",
}
KDA: Names = {
    "attention.norm": "input_layernorm",
    "attention.branch.inputs": rows(
        *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "g_a", "b")), "self_attn.forget_gate.f_a_proj"
    ),
    "attention.branch.conv.conv": "self_attn.conv1d",
    "attention.branch.gate": "self_attn.g_b_proj",
    "attention.branch.decay_up": "self_attn.forget_gate.f_b_proj",
    "attention.branch.decay.a_log": From(("self_attn.forget_gate.A_log",), lambda rates: rates.view(4, 1)),
    "attention.branch.decay.dt": From(("self_attn.forget_gate.dt_bias",), lambda steps: steps.view(4, 8)),
    "attention.branch.norm": "self_attn.o_norm",
    "attention.branch.out": "self_attn.o_proj",
}
NEXT_NORM = {"rmsnorm": {"eps": EPS, "offset": 1, "cast": "gemma"}}

SITES: Names = {
    f"{ours}.residual.{name}": f"{theirs}.{their_name}"
    for ours, theirs in (("attention", "attn_hc"), ("feedforward", "ffn_hc"))
    for name, their_name in (("phi", "fn"), ("bias", "base"), ("alpha", "scale"))
}
V4: Names = {
    **SITES,
    **EXPERTS,
    **shared("mlp.shared_experts"),
    "attention.norm": "input_layernorm",
    "attention.branch.down": rows("self_attn.q_a_proj", "self_attn.kv_proj"),
    "attention.branch.q_norm": "self_attn.q_a_norm",
    "attention.branch.q_up": "self_attn.q_b_proj",
    "attention.branch.k_norm": "self_attn.kv_norm",
    "attention.branch.sinks": "self_attn.sinks",
    "attention.branch.out.down": "self_attn.o_a_proj",
    "attention.branch.out.up": "self_attn.o_b_proj",
}


def compressor(ours: str, theirs: str) -> Names:
    return {
        f"{ours}.project": rows(f"{theirs}.kv_proj", f"{theirs}.gate_proj"),
        f"{ours}.bias": f"{theirs}.position_bias",
        f"{ours}.norm": f"{theirs}.kv_norm",
    }


V4_HCA: Names = {**V4, **SELECTION_BIAS, **compressor("attention.branch.compressor", "self_attn.compressor")}
V4_CSA: Names = {
    **V4_HCA,
    **compressor("attention.branch.indexer.compressor", "self_attn.compressor.indexer"),
    "attention.branch.indexer.query": "self_attn.compressor.indexer.q_b_proj",
    "attention.branch.indexer.weight": "self_attn.compressor.indexer.scorer.weights_proj",
}
V4_WINDOW: Names = {**V4, "feedforward.branch.router.choice.table": "mlp.gate.tid2eid"}
V4_ENDS: Names = {
    "stack.leave.head.phi": "model.hc_head.hc_fn",
    "stack.leave.head.bias": "model.hc_head.hc_base",
    "stack.leave.head.alpha": From(("model.hc_head.hc_scale",), lambda scale: scale.squeeze()),
}
YARN = {"factor": 4, "original": 64, "beta_fast": 2, "beta_slow": 0.5, "attention_factor": 1}
THEIR_YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 2.0, "beta_slow": 0.5}


def v4_rope(base: float, **scaling: Any) -> dict[str, Any]:
    return {"rope": {"base": base, "dims": 8, "at": "end", "pairing": "interleaved", **scaling}}


def v4_block(kind: str, base: dict[str, Any], routing: dict[str, Any], **parameters: Any) -> dict[str, Any]:
    return {
        "position": base,
        "attention": {kind: {"q_rank": 12, "out_groups": 2, "out_rank": 6, **parameters}},
        "feedforward": moe(shared=1, router="sqrt_softplus", scale=1.5, **routing),
    }


@torch.no_grad()
def slow_decays(model: nn.Module) -> None:
    """What is made at random forgets in a token or two; this still knows the first chunk in the second."""
    for name, rates in model.named_parameters():
        if name.endswith("A_log"):
            rates.copy_(torch.tensor([0.01, 0.03, 0.1, 1.0]).log().view_as(rates))


@torch.no_grad()
def random_experts_for_tokens(model: nn.Module) -> None:
    """The table is all zeros at first: two different experts for each token."""
    generator = torch.Generator().manual_seed(9)
    for name, table in model.named_buffers():
        if name.endswith("tid2eid"):
            table.copy_(torch.rand(table.shape[0], 6, generator=generator).topk(2).indices)


HYBRIDS = (
    Family(
        "qwen3-next",
        {
            "dim": 32,
            "heads": 4,
            "head_dim": 8,
            "norm": NEXT_NORM,
            "position": {"rope": {"base": 1000, "dims": 4}},
            "feedforward": moe(shared=1, shared_hidden=20, shared_gate=True),
            "blocks": {
                "linear": {
                    "attention": {"gated_deltanet": {"key_heads": 2, "value_heads": 4, "key_dim": 8, "value_dim": 6}}
                },
                "full": {"attention": {"gqa": {"kv_heads": 2, "gate": True, "qk_norm": NEXT_NORM}}},
            },
            "layers": ["linear", "full"],
        },
        "Qwen3NextForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "layer_types": ["linear_attention", "full_attention"], "rms_norm_eps": EPS, "linear_num_key_heads": 2,
         "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6, "num_experts": 6,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
         "norm_topk_prob": True, "rope_parameters": rope(1000.0, partial_rotary_factor=0.5)},
        {**UNTIED, **stack(DELTA_NET, GATED_ATTENTION)},
        masked=False,  # gated_deltanet takes none
        tokens=70,  # more than a chunk of 64
        prepare=slow_decays,
    ),
    Family(
        "kimi-linear",
        {
            "dim": 32,
            "heads": 4,
            "head_dim": 8,
            "norm": {"rmsnorm": {"eps": KDA_EPS}},
            "position": "none",
            "blocks": {
                "kda": {"attention": "kda", "feedforward": {"dense": {"hidden": 48}}},
                "mla": {
                    "attention": {"mla": MLA_SIZES},
                    "feedforward": moe(shared=1, router="sigmoid", selection_bias=True, scale=2.5),
                },
            },
            "layers": ["kda", "mla"],
        },
        "KimiLinearForCausalLM",
        {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "rms_norm_eps": KDA_EPS, "linear_head_dim": 8, "linear_num_heads": 4, **THEIR_MLA,
         "moe_intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "routed_scaling_factor": 2.5,
         "layer_types": ["linear_attention", "full_attention"], "mlp_layer_types": ["dense", "sparse"],
         "pad_token_id": None},
        {**UNTIED, **stack({**KDA, **FEEDFORWARD}, {**MLA_PLAIN_Q, **V3_EXPERTS})},
        masked=False,  # kda takes none
        tokens=70,  # more than a chunk of 64
        prepare=slow_decays,
    ),
    Family(
        "deepseek-v4",
        {
            "dim": 32,
            "heads": 4,
            "head_dim": 16,
            "norm": {"rmsnorm": {"eps": EPS, "cast": "gemma"}},
            "residual": {"mhc": {"streams": 3, "iterations": 3, "leave": "weighted"}},
            "window": 5,
            "activation": {"swiglu_clamped": {"limit": 0.7}},
            "blocks": {
                "window": v4_block("hca", v4_rope(1000), {"select": "token"}, ratio=None),
                "csa": v4_block(
                    "csa", v4_rope(100, scaling={"yarn": YARN}), {"selection_bias": True},
                    ratio=4, index_heads=2, index_dim=12, index_top_k=2,
                ),
                "hca": v4_block("hca", v4_rope(100, scaling={"yarn": YARN}), {"selection_bias": True}, ratio=6),
            },
            "layers": ["window", "csa", "hca"],
        },
        "DeepseekV4ForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 12,
         "rms_norm_eps": EPS, "sliding_window": 5, "o_groups": 2, "o_lora_rank": 6, "index_n_heads": 2,
         "index_head_dim": 12, "index_topk": 2, "hc_mult": 3, "n_routed_experts": 6, "num_experts_per_tok": 2,
         "moe_intermediate_size": 24, "swiglu_limit": 0.7, "hc_sinkhorn_iters": 3,
         "hc_eps": 0.0,  # 1e-6 in V4, where ours adds nothing to sigmoids and sums: it moves outputs by about that
         "partial_rotary_factor": 0.5,
         "layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
         "mlp_layer_types": ["hash_moe", "moe", "moe"],
         "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 6},
         "rope_parameters": {
             "main": rope(1000.0, partial_rotary_factor=0.5),
             "compress": rope(100.0, rope_type="yarn", partial_rotary_factor=0.5, attention_factor=1.0, **THEIR_YARN)}},
        {**UNTIED, **V4_ENDS, **stack(V4_WINDOW, V4_CSA, V4_HCA)},
        tokens=30,
        prepare=random_experts_for_tokens,
    ),
)  # fmt: skip
