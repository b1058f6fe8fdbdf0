"""Llama and its kin: RMSNorm, rotary positions, a gated feed-forward or a mixture of them."""

from __future__ import annotations

from explorer.huggingface.weights.families.family import Family, Rename, decoder
from explorer.huggingface.weights.layouts import (
    differences_together,
    gate_before_queries,
    halves_swapped,
    own_row,
    pairs_apart,
    transposed,
)
from explorer.huggingface.weights.rules import Names, Take, each, either, rows, stacked

ENDS: Names = {"embedding.table": "embed_tokens", "stack.final_norm": "norm", "head.table": "lm_head"}
ATTENTION: Names = {
    "attention.norm": "input_layernorm",
    "parallel.norm": "input_layernorm",
    "attention.branch.qkv": either(
        rows(Take("self_attn.q_proj", gate_before_queries), "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.qkv_proj",  # Phi-3
    ),
    "attention.branch.out": "self_attn.o_proj",
    "attention.branch.q_norm": "self_attn.q_norm",
    "attention.branch.k_norm": "self_attn.k_norm",
    "attention.branch.q_norm.norm": "self_attn.q_norm",  # over all heads: OLMo-2, OLMoE
    "attention.branch.k_norm.norm": "self_attn.k_norm",
    "attention.branch.q_norm.norms.*": Take("self_attn.q_norm", own_row),  # each head: Cohere
    "attention.branch.k_norm.norms.*": Take("self_attn.k_norm", own_row),
}
FEEDFORWARD: Names = {
    "feedforward.norm": "post_attention_layernorm",
    "feedforward.branch.up": either(rows("mlp.gate_proj", "mlp.up_proj"), "mlp.gate_up_proj"),
    "feedforward.branch.down": "mlp.down_proj",
}
SHARED = ("mlp.shared_experts", "mlp.shared_expert")  # DeepSeek's name and Qwen's
EXPERTS: Names = {
    "feedforward.branch.router.linear": "mlp.gate",
    "feedforward.branch.router.choice.selection_bias": "mlp.gate.e_score_correction_bias",
    "feedforward.branch.experts.up": either(
        "mlp.experts.gate_up_proj", each("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight")
    ),
    "feedforward.branch.experts.down": either("mlp.experts.down_proj", each("mlp.experts.*.down_proj.weight")),
    "feedforward.branch.shared.expert.up": either(*(rows(f"{of}.gate_proj", f"{of}.up_proj") for of in SHARED)),
    "feedforward.branch.shared.expert.down": either(*(f"{of}.down_proj" for of in SHARED)),
    "feedforward.branch.shared.gate": "mlp.shared_expert_gate",
}
LAYER: Names = {**ATTENTION, **FEEDFORWARD, **EXPERTS}
# As Mixtral's files have experts, and Kimi Linear's.
OLD_EXPERTS = (
    Rename(r"\.block_sparse_moe\.", ".mlp."),
    Rename(r"\.experts\.(\d+)\.w1\.", r".experts.\1.gate_proj."),
    Rename(r"\.experts\.(\d+)\.w2\.", r".experts.\1.down_proj."),
    Rename(r"\.experts\.(\d+)\.w3\.", r".experts.\1.up_proj."),
)

_GEMMA: Names = {
    **LAYER,
    "attention.norm_out": "post_attention_layernorm",
    "feedforward.norm": "pre_feedforward_layernorm",
    "feedforward.norm_out": "post_feedforward_layernorm",
}
_NANOCHAT: Names = {
    **LAYER,
    "attention.branch.qkv": rows(
        Take("self_attn.q_proj", halves_swapped), Take("self_attn.k_proj", halves_swapped), "self_attn.v_proj"
    ),
    "feedforward.branch.up": "mlp.fc1",
    "feedforward.branch.down": "mlp.fc2",
}
_DIFFERENTIAL: Names = {
    **LAYER,
    "attention.branch.qkv": rows(*(Take(f"self_attn.{name}_proj", differences_together) for name in "qkv")),
    "attention.branch.lambda_q": stacked("self_attn.lambda_q1", "self_attn.lambda_q2"),
    "attention.branch.lambda_k": stacked("self_attn.lambda_k1", "self_attn.lambda_k2"),
}
_GPT_OSS: Names = {
    **LAYER,
    "attention.branch.sinks": "self_attn.sinks",
    "feedforward.branch.router.linear": "mlp.router",
    "feedforward.branch.experts.up": Take("mlp.experts.gate_up_proj", pairs_apart),
    "feedforward.branch.experts.up_bias": Take("mlp.experts.gate_up_proj_bias", pairs_apart),
    "feedforward.branch.experts.down": Take("mlp.experts.down_proj", transposed),
    "feedforward.branch.experts.down_bias": "mlp.experts.down_proj_bias",
}

# Llama, Mistral, Qwen 2 and 3, Phi-3, Cohere, Mixtral, OLMoE.
LLAMA = Family("llama", ENDS, decoder("layers", LAYER), OLD_EXPERTS)
# Gemma 2 and 3, and OLMo-2, which has no norms before its sublayers.
GEMMA = Family("gemma, olmo-2", ENDS, decoder("layers", _GEMMA))
NANOCHAT = Family("nanochat", ENDS, decoder("layers", _NANOCHAT))
DIFF_LLAMA = Family("diff-llama", ENDS, decoder("layers", _DIFFERENTIAL))
GPT_OSS = Family("gpt-oss", ENDS, decoder("layers", _GPT_OSS))
