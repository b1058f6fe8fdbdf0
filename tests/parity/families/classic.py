"""LayerNorm and biases: GPT-2, BERT, and the parallel layers of GPT-J, GPT-NeoX and Falcon."""

from __future__ import annotations

from tests.parity.harness import Family
from tests.parity.tasks import ENCODER, END, POOLER

EPS = 1e-3  # large enough that one in another place shows
BLUEPRINT = {
    "dim": 32,
    "heads": 4,
    "norm": {"layernorm": {"eps": EPS}},
    "feedforward": {"dense": {"hidden": 48}},
    "activation": "gelu",
    "bias": True,
    "layers": 2,
}
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
NO_DROPOUT = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}

BERT_BLUEPRINT = {
    **BLUEPRINT,
    "causal": False,
    "placement": "post",
    "position": {"learned": {"max_tokens": 20}},
    "embedding": {"types": 2, "norm": True},
}
BERT_CONFIG = {**SIZES, **NO_DROPOUT, "intermediate_size": 48, "layer_norm_eps": EPS, "max_position_embeddings": 20}

CLASSIC = (
    Family(
        "gpt2",
        {**BLUEPRINT, "position": {"learned": {"max_tokens": 20}}, "activation": "gelu_tanh", "tie_embeddings": True},
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 48, "layer_norm_epsilon": EPS, "n_positions": 20,
         "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    ),
    Family(
        "bert",
        {**BERT_BLUEPRINT, "head": "none"},
        "BertModel",
        BERT_CONFIG,
        ENCODER,
        options={"add_pooling_layer": False},
    ),
    Family(
        "bert-pooled",
        {**BERT_BLUEPRINT, "head": {"pooler": {"activation": "tanh"}}},
        "BertModel",
        BERT_CONFIG,
        POOLER,
    ),
    Family(
        "gpt-j",
        {
            **BLUEPRINT,
            "layout": {"parallel": {"shared_norm": True}},
            "position": {"rope": {"dims": 4, "pairing": "interleaved"}},
            "feedforward": {"dense": {"hidden": 48, "bias": True}},
            "activation": "gelu_tanh",
            "bias": False,
            "head": {"lm": {"bias": True}},
        },
        "GPTJForCausalLM",
        {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 48, "n_positions": 20, "rotary_dim": 4,
         "layer_norm_epsilon": EPS, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    ),
    Family(
        "gpt-neox",
        {**BLUEPRINT, "layout": {"parallel": {"shared_norm": False}}, "position": {"rope": {"dims": 4, "base": 1000}}},
        "GPTNeoXForCausalLM",
        {**SIZES, "intermediate_size": 48, "layer_norm_eps": EPS,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}},
    ),
    Family(
        "falcon-7b",
        {
            **BLUEPRINT,
            "layout": {"parallel": {"shared_norm": True}},
            "attention": {"gqa": {"kv_heads": 1}},
            "bias": False,
            "tie_embeddings": True,
        },
        "FalconForCausalLM",
        {**SIZES, "ffn_hidden_size": 48, "layer_norm_epsilon": EPS},
    ),
    Family(
        "falcon-40b",
        {
            **BLUEPRINT,
            "layout": {"parallel": {"shared_norm": False}},
            "attention": {"gqa": {"kv_heads": 2}},
            "bias": False,
            "tie_embeddings": True,
        },
        "FalconForCausalLM",
        {**SIZES, "ffn_hidden_size": 48, "layer_norm_epsilon": EPS,
         "num_kv_heads": 2, "new_decoder_architecture": True},
    ),
    Family(
        "bloom",
        {
            **BLUEPRINT,
            "dim": 36,
            "heads": 6,  # no power of 2: the slopes in between
            "position": "alibi",
            "feedforward": {"dense": {"hidden": 144}},
            "activation": "gelu_tanh",
            "embedding": {"norm": True},
            "tie_embeddings": True,
        },
        "BloomForCausalLM",
        {"hidden_size": 36, "n_head": 6, "n_layer": 2, "layer_norm_epsilon": EPS},
        hidden=END,  # theirs counts places over real tokens only
    ),
)  # fmt: skip
