"""Latent attention, and several kinds of attention in one stack: DeepSeek-V2 and V3, Kimi Linear, Qwen3-Next."""

from __future__ import annotations

from explorer.huggingface.weights.families.family import Family, Rename, decoder
from explorer.huggingface.weights.families.llama import ENDS, LAYER, OLD_EXPERTS
from explorer.huggingface.weights.layouts import (
    beta_decay_apart,
    by_key_head,
    in_our_shape,
    keys_values_apart,
)
from explorer.huggingface.weights.rules import Names, Take, either, rows

_LATENT: Names = {
    **LAYER,
    "attention.branch.down": either(
        rows("self_attn.q_a_proj", "self_attn.kv_a_proj_with_mqa"),
        rows("self_attn.q_proj", "self_attn.kv_a_proj_with_mqa"),  # q without a latent
    ),
    "attention.branch.q_norm": "self_attn.q_a_layernorm",
    "attention.branch.q_up": "self_attn.q_b_proj",
    "attention.branch.kv_norm": "self_attn.kv_a_layernorm",
    "attention.branch.kv_up": Take("self_attn.kv_b_proj", keys_values_apart),
}
_KIMI: Names = {
    **_LATENT,
    "attention.branch.inputs": rows(
        *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "g_a", "b")), "self_attn.forget_gate.f_a_proj"
    ),
    "attention.branch.conv.conv": either("self_attn.conv1d", rows(*(f"self_attn.{name}_conv1d" for name in "qkv"))),
    "attention.branch.gate": "self_attn.g_b_proj",
    "attention.branch.decay_up": "self_attn.forget_gate.f_b_proj",
    "attention.branch.decay.a_log": Take("self_attn.forget_gate.A_log", in_our_shape),
    "attention.branch.decay.dt": Take("self_attn.forget_gate.dt_bias", in_our_shape),
    "attention.branch.norm": "self_attn.o_norm",
}
_QWEN3_NEXT: Names = {
    **LAYER,
    "attention.branch.inputs": rows(
        Take("linear_attn.in_proj_qkvz", by_key_head), Take("linear_attn.in_proj_ba", beta_decay_apart)
    ),
    "attention.branch.conv.conv": "linear_attn.conv1d",
    "attention.branch.decay.a_log": Take("linear_attn.A_log", in_our_shape),
    "attention.branch.decay.dt": Take("linear_attn.dt_bias", in_our_shape),
    "attention.branch.norm": "linear_attn.norm",
    "attention.branch.out": either("self_attn.o_proj", "linear_attn.out_proj"),
}
# Files say what belongs to the forget gate as the attention's.
_FORGET_GATE = Rename(r"\.self_attn\.(f_a_proj|f_b_proj|A_log|dt_bias)", r".self_attn.forget_gate.\1")

DEEPSEEK = Family("deepseek", ENDS, decoder("layers", _LATENT))  # V2 and V3, Kimi K2
KIMI_LINEAR = Family("kimi-linear", ENDS, decoder("layers", _KIMI), (*OLD_EXPERTS, _FORGET_GATE))
QWEN3_NEXT = Family("qwen3-next", ENDS, decoder("layers", _QWEN3_NEXT))
