"""Several kinds of attention in one stack: Qwen3-Next, Kimi Linear and DeepSeek-V4."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.parity.families.experts import (
    MLA_SIZES,
    THEIR_MLA,
    moe,
)
from tests.parity.families.llama_like import rope
from tests.parity.harness import Family
from tests.parity.tasks import END

EPS, KDA_EPS = 1e-6, 1e-5  # those of the norms inside gated_deltanet, csa and hca, and inside kda


NEXT_NORM = {"rmsnorm": {"eps": EPS, "offset": 1, "cast": "gemma"}}
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
        masked=False,  # gated_deltanet takes none
        tokens=76,  # more than a chunk of 64 before the first step
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
        masked=False,  # kda takes none
        tokens=76,  # more than a chunk of 64 before the first step
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
                # With few heads most scores are exactly 0; among equal ones theirs takes any, ours the newest.
                "csa": v4_block(
                    "csa", v4_rope(100, scaling={"yarn": YARN}), {"selection_bias": True},
                    ratio=4, index_heads=16, index_dim=12, index_top_k=2,
                ),
                "hca": v4_block("hca", v4_rope(100, scaling={"yarn": YARN}), {"selection_bias": True}, ratio=6),
            },
            "layers": ["window", "csa", "hca"],
        },
        "DeepseekV4ForCausalLM",
        {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 12,
         "rms_norm_eps": EPS, "sliding_window": 5, "o_groups": 2, "o_lora_rank": 6, "index_n_heads": 16,
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
        hidden=END,  # theirs pools padding into its compressed keys
        tokens=30,
        prepare=random_experts_for_tokens,
    ),
)  # fmt: skip
