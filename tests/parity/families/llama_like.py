"""RMSNorm, rotary positions, a gated feed-forward, no biases: Llama and its kin."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.parity.harness import Family
from tests.parity.weights import From, Names, layers, rows

EPS = 1e-3  # large enough that one in another place shows
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": EPS,
}
NORM = {"rmsnorm": {"eps": EPS}}
BLUEPRINT = {
    "dim": 32,
    "heads": 4,
    "norm": NORM,
    "attention": {"gqa": {"kv_heads": 2}},
    "feedforward": {"dense": {"hidden": 48}},
    "layers": 2,
}


def each_head(norm: str, heads: int) -> Names:
    """Their rows of gains, (heads, head_dim), as a norm for each head."""
    ours = f"parallel.sublayers.attention.{norm}.norms"
    theirs = (f"self_attn.{norm}",)
    return {f"{ours}.{head}": From(theirs, lambda gains, head=head: gains[head]) for head in range(heads)}


TABLES = {"embedding.table": "model.embed_tokens", "stack.final_norm": "model.norm"}
UNTIED = {**TABLES, "head.table": "lm_head"}
ATTENTION: Names = {
    "attention.norm": "input_layernorm",
    "attention.branch.qkv": rows("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.branch.out": "self_attn.o_proj",
}
FEEDFORWARD: Names = {
    "feedforward.norm": "post_attention_layernorm",
    "feedforward.branch.up": rows("mlp.gate_proj", "mlp.up_proj"),
    "feedforward.branch.down": "mlp.down_proj",
}
WHOLE_QK_NORM: Names = {
    "attention.branch.q_norm.norm": "self_attn.q_norm",
    "attention.branch.k_norm.norm": "self_attn.k_norm",
}
QK_NORM: Names = {"attention.branch.q_norm": "self_attn.q_norm", "attention.branch.k_norm": "self_attn.k_norm"}
LAYER: Names = {**ATTENTION, **FEEDFORWARD}
SANDWICH: Names = {
    **LAYER,
    "attention.norm_out": "post_attention_layernorm",
    "feedforward.norm": "pre_feedforward_layernorm",
    "feedforward.norm_out": "post_feedforward_layernorm",
}
RES_POST: Names = {
    **{name: theirs for name, theirs in LAYER.items() if not name.endswith(".norm")},
    **WHOLE_QK_NORM,
    "attention.norm_out": "post_attention_layernorm",
    "feedforward.norm_out": "post_feedforward_layernorm",
}
FUSED: Names = {**LAYER, "attention.branch.qkv": "self_attn.qkv_proj", "feedforward.branch.up": "mlp.gate_up_proj"}
COHERE: Names = {
    "parallel.norm": "input_layernorm",
    **{
        f"parallel.sublayers.{name.replace('.branch', '')}": theirs
        for name, theirs in LAYER.items()
        if ".branch" in name
    },
    **each_head("q_norm", 4),
    **each_head("k_norm", 2),
}


def turned_back(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Halves of each head swapped: NanoChat rotates the other way round."""
    return torch.cat([*(rows.unflatten(0, (-1, 2, 4)).flip(1).flatten(0, 2) for rows in (q, k)), v])


NANOCHAT: Names = {
    "attention.branch.qkv": From(tuple(f"self_attn.{name}_proj" for name in "qkv"), turned_back),
    "attention.branch.out": "self_attn.o_proj",
    "feedforward.branch.up": "mlp.fc1",
    "feedforward.branch.down": "mlp.fc2",
}


def halves_together(*projections: Tensor) -> Tensor:
    """Heads i and i + 2 of four, which make a difference, one behind the other."""
    return torch.cat([rows.unflatten(0, (2, 2, -1)).transpose(0, 1).flatten(0, 2) for rows in projections])


DIFFERENTIAL: Names = {
    **LAYER,
    "attention.branch.qkv": From(tuple(f"self_attn.{name}_proj" for name in "qkv"), halves_together),
    **{
        f"attention.branch.lambda_{name}": From(
            (f"self_attn.lambda_{name}1", f"self_attn.lambda_{name}2"), lambda *parts: torch.stack(parts)
        )
        for name in "qk"
    },
}

BARE_NORM = {"rmsnorm": {"eps": EPS, "affine": False}}
GEMMA_NORM = {"rmsnorm": {"eps": EPS, "offset": 1, "cast": "gemma"}}
GEMMA = {
    **BLUEPRINT,
    "head_dim": 10,
    "norm": GEMMA_NORM,
    "placement": "sandwich",
    "activation": "geglu_tanh",
    "embedding": {"scale": "sqrt_dim"},
    "tie_embeddings": True,
}
LAYERNORM = {"layernorm": {"eps": EPS, "bias": False}}
OLMO_NORM = {"rmsnorm": {"eps": EPS, "cast": "gemma"}}


def rope(base: float, **scaling: Any) -> dict[str, Any]:
    """Their rope config."""
    return {"rope_theta": base, "rope_type": "default", **scaling}


def stack(*tables: Names) -> Names:
    return layers("stack.layers", "model.layers", tables)


LLAMA_LIKE = (
    Family(
        "llama",
        {**BLUEPRINT, "position": {"rope": {"base": 500.0}}},
        "LlamaForCausalLM",
        {**SIZES, "rope_parameters": rope(500.0)},
        {**UNTIED, **stack(LAYER, LAYER)},
    ),
    Family(
        "mistral",
        {**BLUEPRINT, "window": 5},
        "MistralForCausalLM",
        {**SIZES, "sliding_window": 5, "rope_parameters": rope(10000.0)},
        {**UNTIED, **stack(LAYER, LAYER)},
    ),
    Family(
        "qwen3",
        {
            **BLUEPRINT,
            "head_dim": 10,
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": NORM}},
            "position": {"rope": {"base": 1e6}},
        },
        "Qwen3ForCausalLM",
        {**SIZES, "head_dim": 10, "rope_parameters": rope(1e6)},
        {**UNTIED, **stack({**LAYER, **QK_NORM}, {**LAYER, **QK_NORM})},
    ),
    Family(
        "qwen2.5",
        {**BLUEPRINT, "attention": {"gqa": {"kv_heads": 2, "bias": "qkv"}}, "tie_embeddings": True},
        "Qwen2ForCausalLM",
        {**SIZES, "tie_word_embeddings": True, "rope_parameters": rope(10000.0)},
        {**TABLES, **stack(LAYER, LAYER)},
    ),
    Family(
        "phi-3",
        {**BLUEPRINT, "window": 5, "position": {"rope": {"dims": 4}}},
        "Phi3ForCausalLM",
        {**SIZES, "sliding_window": 5, "pad_token_id": None, "rope_parameters": rope(1e4, partial_rotary_factor=0.5)},
        {**UNTIED, **stack(FUSED, FUSED)},
    ),
    Family(
        "gemma-2",
        {
            **GEMMA,
            "attention": {"gqa": {"kv_heads": 2, "scale": 0.5, "softcap": 2}},
            "blocks": {"local": {"window": 5}, "global": {}},
            "layers": ["local", "global"],
            "head": {"lm": {"softcap": 3}},
        },
        "Gemma2ForCausalLM",
        {**SIZES, "head_dim": 10, "query_pre_attn_scalar": 4, "attn_logit_softcapping": 2.0,
         "final_logit_softcapping": 3.0, "sliding_window": 5, "rope_parameters": rope(10000.0)},
        {**TABLES, **stack(SANDWICH, SANDWICH)},
    ),
    Family(
        "olmo-2",
        {
            **BLUEPRINT,
            "norm": OLMO_NORM,
            "placement": "res_post",
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": OLMO_NORM, "qk_norm_over": "all"}},
        },
        "Olmo2ForCausalLM",
        {**SIZES, "rope_parameters": rope(10000.0)},
        {**UNTIED, **stack(RES_POST, RES_POST)},
    ),
    Family(
        "llama-3.1",
        {
            **BLUEPRINT,
            # Wave lengths of a head of 8 are 6.3, 29, 136, 632: kept, between, stretched, stretched.
            "position": {"rope": {"base": 464, "scaling": {"llama3": {"factor": 8, "original": 64}}}},
        },
        "LlamaForCausalLM",
        {**SIZES, "rope_parameters": rope(464.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                          high_freq_factor=4.0, original_max_position_embeddings=64)},
        {**UNTIED, **stack(LAYER, LAYER)},
    ),
    Family(
        "gemma-3",
        {
            **GEMMA,
            "attention": {"gqa": {"kv_heads": 2, "scale": 0.5, "qk_norm": GEMMA_NORM}},
            "blocks": {
                "local": {"window": 5, "position.base": 100},
                "global": {"position": {"rope": {"base": 1000, "scaling": {"linear": {"factor": 8}}}}},
            },
            "layers": {"pattern": [{"local": 5}, "global"], "count": 7},
        },
        "Gemma3ForCausalLM",
        {**SIZES, "num_hidden_layers": 7, "head_dim": 10, "query_pre_attn_scalar": 4, "sliding_window": 5,
         "rope_parameters": {"sliding_attention": rope(100.0),
                             "full_attention": rope(1000.0, rope_type="linear", factor=8.0)}},
        {**TABLES, **stack(*[{**SANDWICH, **QK_NORM}] * 7)},
    ),
    Family(
        "cohere",
        {
            **BLUEPRINT,
            "norm": LAYERNORM,
            "layout": {"parallel": {"shared_norm": True}},
            "position": {"rope": {"pairing": "interleaved"}},
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": LAYERNORM, "qk_norm_over": "each_head"}},
            "head": {"lm": {"scale": 0.5}},
            "tie_embeddings": True,
        },
        "CohereForCausalLM",
        {**{name: size for name, size in SIZES.items() if name != "rms_norm_eps"}, "layer_norm_eps": EPS,
         "logit_scale": 0.5, "use_qk_norm": True, "rope_parameters": rope(10000.0)},
        {**TABLES, **stack(COHERE, COHERE)},
    ),
    Family(
        "nanochat",
        {
            **BLUEPRINT,
            "norm": BARE_NORM,
            "attention": {"gqa": {"kv_heads": 2, "qk_norm": BARE_NORM, "qk_norm_after_position": True}},
            "activation": "relu2",
            "embedding": {"norm": True},
            "head": {"lm": {"softcap": 3}},
        },
        "NanoChatForCausalLM",
        {**SIZES, "final_logit_softcapping": 3.0, "rope_parameters": rope(10000.0)},
        {"embedding.table": "model.embed_tokens", "head.table": "lm_head", **stack(NANOCHAT, NANOCHAT)},
    ),
    Family(
        "diff-llama",
        {
            **BLUEPRINT,
            "heads": 2,  # theirs counts halves
            "attention": {"differential": {"norm": BARE_NORM}},
        },
        "DiffLlamaForCausalLM",
        {**SIZES, "num_key_value_heads": 4, "rope_parameters": rope(10000.0)},
        {**UNTIED, **stack(DIFFERENTIAL, DIFFERENTIAL)},
    ),
)  # fmt: skip
