"""DeepSeek-V4: compressed attention, hyper-connections, experts."""

from __future__ import annotations

from explorer.huggingface.weights.families.family import Family, Rename, decoder
from explorer.huggingface.weights.families.llama import ENDS, LAYER, OLD_EXPERTS
from explorer.huggingface.weights.layouts import in_our_shape
from explorer.huggingface.weights.rules import Names, Take, rows

_COMPRESSOR, _INDEXER = "self_attn.compressor", "self_attn.compressor.indexer"


def _compressor(ours: str, theirs: str) -> Names:
    return {
        f"{ours}.project": rows(f"{theirs}.kv_proj", f"{theirs}.gate_proj"),
        f"{ours}.bias": f"{theirs}.position_bias",
        f"{ours}.norm": f"{theirs}.kv_norm",
    }


def _site(ours: str, theirs: str) -> Names:
    return {
        f"{ours}.residual.phi": f"{theirs}.fn",
        f"{ours}.residual.bias": f"{theirs}.base",
        f"{ours}.residual.alpha": f"{theirs}.scale",
    }


_ENDS: Names = {
    **ENDS,
    "stack.leave.head.phi": "hc_head.hc_fn",
    "stack.leave.head.bias": "hc_head.hc_base",
    "stack.leave.head.alpha": Take("hc_head.hc_scale", in_our_shape),
}
_LAYER: Names = {
    **LAYER,
    **_site("attention", "attn_hc"),
    **_site("feedforward", "ffn_hc"),
    "attention.branch.down": rows("self_attn.q_a_proj", "self_attn.kv_proj"),
    "attention.branch.q_norm": "self_attn.q_a_norm",
    "attention.branch.q_up": "self_attn.q_b_proj",
    "attention.branch.k_norm": "self_attn.kv_norm",
    "attention.branch.sinks": "self_attn.sinks",
    "attention.branch.out.down": "self_attn.o_a_proj",
    "attention.branch.out.up": "self_attn.o_b_proj",
    **_compressor("attention.branch.compressor", _COMPRESSOR),
    **_compressor("attention.branch.indexer.compressor", _INDEXER),
    "attention.branch.indexer.query": f"{_INDEXER}.q_b_proj",
    "attention.branch.indexer.weight": f"{_INDEXER}.scorer.weights_proj",
    "feedforward.branch.router.choice.table": "mlp.gate.tid2eid",
}
# As the published files say it.
_RENAMES = (
    Rename(r"^embed\.", "embed_tokens."),
    Rename(r"^head\.", "lm_head."),
    Rename(r"^hc_head_", "hc_head.hc_"),
    Rename(r"\.hc_(attn|ffn)_(fn|base|scale)$", r".\1_hc.\2"),
    Rename(r"\.attn_norm\.", ".input_layernorm."),
    Rename(r"\.ffn_norm\.", ".post_attention_layernorm."),
    Rename(r"\.ffn\.", ".mlp."),
    Rename(r"\.gate\.bias$", ".gate.e_score_correction_bias"),
    Rename(r"\.shared_experts\.w1\.", ".shared_experts.gate_proj."),
    Rename(r"\.shared_experts\.w2\.", ".shared_experts.down_proj."),
    Rename(r"\.shared_experts\.w3\.", ".shared_experts.up_proj."),
    Rename(r"\.attn\.", ".self_attn."),
    Rename(r"\.attn_sink$", ".sinks"),
    Rename(r"\.indexer\.compressor\.", ".compressor.indexer."),
    Rename(r"\.self_attn\.indexer\.wq_b\.", f".{_INDEXER}.q_b_proj."),
    Rename(r"\.self_attn\.indexer\.weights_proj\.", f".{_INDEXER}.scorer.weights_proj."),
    Rename(r"\.ape$", ".position_bias"),
    Rename(r"\.q_norm\.", ".q_a_norm."),
    Rename(r"(\.self_attn(?:\.\w+)*)\.norm\.", r"\1.kv_norm."),
    Rename(r"\.wq_a\.", ".q_a_proj."),
    Rename(r"\.wq_b\.", ".q_b_proj."),
    Rename(r"\.wkv\.", ".kv_proj."),
    Rename(r"\.wgate\.", ".gate_proj."),
    Rename(r"\.wo_a\.", ".o_a_proj."),
    Rename(r"\.wo_b\.", ".o_b_proj."),
)

DEEPSEEK_V4 = Family("deepseek-v4", _ENDS, decoder("layers", _LAYER), (*_RENAMES, *OLD_EXPERTS))
