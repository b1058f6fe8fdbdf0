"""RMSNorm, rotary positions, a gated feed-forward, no biases: Llama and its kin."""

from __future__ import annotations

from typing import Any

from tests.parity.harness import Family

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


LLAMA_LIKE = (
    Family(
        "llama",
        {**BLUEPRINT, "position": {"rope": {"base": 500.0}}},
        "LlamaForCausalLM",
        {**SIZES, "rope_parameters": rope(500.0)},
    ),
    Family(
        "mistral",
        {**BLUEPRINT, "window": 5},
        "MistralForCausalLM",
        {**SIZES, "sliding_window": 5, "rope_parameters": rope(10000.0)},
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
    ),
    Family(
        "qwen2.5",
        {**BLUEPRINT, "attention": {"gqa": {"kv_heads": 2, "bias": "qkv"}}, "tie_embeddings": True},
        "Qwen2ForCausalLM",
        {**SIZES, "tie_word_embeddings": True, "rope_parameters": rope(10000.0)},
    ),
    Family(
        "phi-3",
        {**BLUEPRINT, "window": 5, "position": {"rope": {"dims": 4}}},
        "Phi3ForCausalLM",
        {**SIZES, "sliding_window": 5, "pad_token_id": None, "rope_parameters": rope(1e4, partial_rotary_factor=0.5)},
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
    ),
)  # fmt: skip
