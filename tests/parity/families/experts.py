"""Mixtures of experts: Mixtral, Qwen3-MoE, OLMoE, DeepSeek-V3 and gpt-oss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tests.parity.families.llama_like import (
    BLUEPRINT,
    EPS,
    NORM,
    SIZES,
    rope,
)
from tests.parity.harness import Family


def moe(**parameters: Any) -> Mapping[str, Any]:
    return {"moe": {"experts": 6, "top_k": 2, "hidden": 24, **parameters}}


V3_BLUEPRINT = {
    **BLUEPRINT,
    "position": {"rope": {"pairing": "interleaved"}},
    "blocks": {
        "dense": {},
        "experts": {
            "feedforward": moe(
                experts=8, top_k=3, shared=1, router="sigmoid", selection_bias=True, scale=2.5, groups=4, top_groups=2
            )
        },
    },
    "layers": ["dense", "experts"],
}
MLA_SIZES = {"kv_rank": 10, "rope_dim": 8, "nope_dim": 8, "value_dim": 6}
THEIR_MLA = {"kv_lora_rank": 10, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 6}
V3_CONFIG = {
    **SIZES,
    **THEIR_MLA,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
}
# Of the four pairs the first two keep their frequency, the third is in between, the last is stretched.
YARN = {"factor": 4, "original": 64, "beta_fast": 2, "beta_slow": 0.5}
THEIR_YARN = rope(
    100.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=2.0, beta_slow=0.5
)
# YaRN's factor for the softmax, for m = 1 and m = 0.7: transformers takes its square into the scale of the scores and
# the quotient of the two into the rotation.
MSCALE, MSCALE_ROTATION = 0.1 * math.log(4) + 1, (0.1 * 0.7 * math.log(4) + 1) / (0.1 * math.log(4) + 1)

EXPERT_FAMILIES = (
    Family(
        "mixtral",
        {**BLUEPRINT, "feedforward": moe()},
        "MixtralForCausalLM",
        {**SIZES, "intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": None,
         "rope_parameters": rope(10000.0)},
    ),
    Family(
        "qwen3-moe",
        {**BLUEPRINT, "head_dim": 10, "attention": {"gqa": {"kv_heads": 2, "qk_norm": NORM}}, "feedforward": moe()},
        "Qwen3MoeForCausalLM",
        {**SIZES, "head_dim": 10, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "norm_topk_prob": True, "rope_parameters": rope(10000.0)},
    ),
    Family(
        "olmoe",
        {
            **BLUEPRINT,
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": NORM, "qk_norm_over": "all"}},
            "feedforward": moe(renormalise=False),
        },
        "OlmoeForCausalLM",
        {**SIZES, "intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": False,
         "rope_parameters": rope(10000.0)},
    ),
    Family(
        "deepseek-v3",
        {
            **V3_BLUEPRINT,
            "position": {"rope": {"base": 100, "pairing": "interleaved",
                                  "scaling": {"yarn": {**YARN, "attention_factor": MSCALE_ROTATION}}}},
            "attention": {"mla": {"q_rank": 12, "scale": 16**-0.5 * MSCALE**2, **MLA_SIZES}},
        },
        "DeepseekV3ForCausalLM",
        {**V3_CONFIG, "q_lora_rank": 12, "rope_parameters": {**THEIR_YARN, "mscale": 0.7, "mscale_all_dim": 1.0}},
    ),
    Family(
        "deepseek-v3-plain-q",
        {**V3_BLUEPRINT, "attention": {"mla": MLA_SIZES}},
        "DeepseekV3ForCausalLM",
        {**V3_CONFIG, "q_lora_rank": None, "rope_parameters": rope(10000.0)},
    ),
    Family(
        "deepseek-v2",
        {
            **BLUEPRINT,
            "position": {"rope": {"pairing": "interleaved"}},
            "attention": {"mla": {"q_rank": 12, **MLA_SIZES}},
            "feedforward": moe(
                experts=8, top_k=3, shared=2, groups=4, top_groups=2, group_score="max", renormalise=False, scale=2
            ),
        },
        "DeepseekV2ForCausalLM",
        {**SIZES, "num_key_value_heads": 4, "q_lora_rank": 12, **THEIR_MLA, "moe_intermediate_size": 24,
         "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "topk_method": "group_limited_greedy",
         "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.0, "rope_parameters": rope(10000.0)},
    ),
    Family(
        "gpt-oss",
        {
            **BLUEPRINT,
            "norm": {"rmsnorm": {"eps": EPS, "cast": "gemma"}},
            "position": {"rope": {"base": 100, "scaling": {"yarn": {**YARN, "truncate": False}}}},
            "attention": {"gqa": {"kv_heads": 2, "sinks": True}},
            "feedforward": moe(),
            "activation": {"swiglu_clamped": {"limit": 0.7, "alpha": 1.702, "up_offset": 1}},
            "bias": True,
            "blocks": {"local": {"window": 5}, "global": {}},
            "layers": ["local", "global"],
        },
        "GptOssForCausalLM",
        {**SIZES, "head_dim": 8, "intermediate_size": 24, "num_local_experts": 6, "num_experts_per_tok": 2,
         "sliding_window": 5, "swiglu_limit": 0.7, "rope_parameters": {**THEIR_YARN, "truncate": False}},
    ),
)  # fmt: skip
