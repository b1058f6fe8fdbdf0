"""LayerNorm and biases: GPT-2, BERT, and the parallel layers of GPT-J, GPT-NeoX and Falcon."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.parity.harness import Family
from tests.parity.tasks import ENCODER, POOLER
from tests.parity.weights import From, Names, layers, regrouped, rows, transposed

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

GPT2 = {
    "embedding.table": "transformer.wte",
    "stack.positions.0.table": "transformer.wpe",
    "stack.final_norm": "transformer.ln_f",
    **layers("stack.layers", "transformer.h", [{
        "attention.norm": "ln_1",
        "attention.branch.qkv": transposed("attn.c_attn"),
        "attention.branch.out": transposed("attn.c_proj"),
        "feedforward.norm": "ln_2",
        "feedforward.branch.up": transposed("mlp.c_fc"),
        "feedforward.branch.down": transposed("mlp.c_proj"),
    }] * 2),
}  # fmt: skip
BERT = {
    "embedding.table": "embeddings.word_embeddings",
    "embedding.types": "embeddings.token_type_embeddings",
    "embedding.norm": "embeddings.LayerNorm",
    "stack.positions.0.table": "embeddings.position_embeddings",
    **layers("stack.layers", "encoder.layer", [{
        "attention.branch.qkv": rows("attention.self.query", "attention.self.key", "attention.self.value"),
        "attention.branch.out": "attention.output.dense",
        "attention.norm_post": "attention.output.LayerNorm",
        "feedforward.branch.up": "intermediate.dense",
        "feedforward.branch.down": "output.dense",
        "feedforward.norm_post": "output.LayerNorm",
    }] * 2),
}  # fmt: skip
BERT_BLUEPRINT = {
    **BLUEPRINT,
    "causal": False,
    "placement": "post",
    "position": {"learned": {"max_tokens": 16}},
    "embedding": {"types": 2, "norm": True},
}
BERT_CONFIG = {**SIZES, **NO_DROPOUT, "intermediate_size": 48, "layer_norm_eps": EPS, "max_position_embeddings": 16}
GPT_J = {
    "embedding.table": "transformer.wte",
    "stack.final_norm": "transformer.ln_f",
    "head.table.weight": "lm_head.weight",
    "head.bias": "lm_head.bias",
    **layers("stack.layers", "transformer.h", [{
        "parallel.norm": "ln_1",
        "parallel.sublayers.attention.qkv": rows("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        "parallel.sublayers.attention.out": "attn.out_proj",
        "parallel.sublayers.feedforward.up": "mlp.fc_in",
        "parallel.sublayers.feedforward.down": "mlp.fc_out",
    }] * 2),
}  # fmt: skip
NEOX = {
    "embedding.table": "gpt_neox.embed_in",
    "stack.final_norm": "gpt_neox.final_layer_norm",
    "head.table": "lm_head",
    **layers("stack.layers", "gpt_neox.layers", [{
        "parallel.norms.attention": "input_layernorm",
        "parallel.norms.feedforward": "post_attention_layernorm",
        "parallel.sublayers.attention.qkv": regrouped("attention.query_key_value", 4, 3, order=(1, 0)),
        "parallel.sublayers.attention.out": "attention.dense",
        "parallel.sublayers.feedforward.up": "mlp.dense_h_to_4h",
        "parallel.sublayers.feedforward.down": "mlp.dense_4h_to_h",
    }] * 2),
}  # fmt: skip
BLOOM = {
    "embedding.table": "transformer.word_embeddings",
    "embedding.norm": "transformer.word_embeddings_layernorm",
    "stack.final_norm": "transformer.ln_f",
    **layers("stack.layers", "transformer.h", [{
        "attention.norm": "input_layernorm",
        "attention.branch.qkv": regrouped("self_attention.query_key_value", 6, 3, order=(1, 0)),
        "attention.branch.out": "self_attention.dense",
        "feedforward.norm": "post_attention_layernorm",
        "feedforward.branch.up": "mlp.dense_h_to_4h",
        "feedforward.branch.down": "mlp.dense_4h_to_h",
    }] * 2),
}  # fmt: skip


def falcon(norms: Names, qkv: str | From) -> Names:
    layer = {
        **norms,
        "parallel.sublayers.attention.qkv": qkv,
        "parallel.sublayers.attention.out": "self_attention.dense",
        "parallel.sublayers.feedforward.up": "mlp.dense_h_to_4h",
        "parallel.sublayers.feedforward.down": "mlp.dense_4h_to_h",
    }
    return {
        "embedding.table": "transformer.word_embeddings",
        "stack.final_norm": "transformer.ln_f",
        **layers("stack.layers", "transformer.h", [layer] * 2),
    }


def by_kv_head(weight: Tensor) -> Tensor:
    """Rows [its query heads | k | v] for each of two key-value heads, as [all q | all k | all v]."""
    q, k, v = weight.unflatten(0, (2, 4, 8)).split([2, 1, 1], dim=1)  # (kv_heads, 2 | 1 | 1, head_dim, dim)
    return torch.cat([part.flatten(0, 2) for part in (q, k, v)])


CLASSIC = (
    Family(
        "gpt2",
        {**BLUEPRINT, "position": {"learned": {"max_tokens": 16}}, "activation": "gelu_tanh", "tie_embeddings": True},
        "GPT2LMHeadModel",
        {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 48, "layer_norm_epsilon": EPS, "n_positions": 16,
         "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
        GPT2,
    ),
    Family(
        "bert",
        {**BERT_BLUEPRINT, "head": "none"},
        "BertModel",
        BERT_CONFIG,
        BERT,
        ENCODER,
        options={"add_pooling_layer": False},
    ),
    Family(
        "bert-pooled",
        {**BERT_BLUEPRINT, "head": {"pooler": {"activation": "tanh"}}},
        "BertModel",
        BERT_CONFIG,
        {**BERT, "head.linear": "pooler.dense"},
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
        {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_inner": 48, "n_positions": 16, "rotary_dim": 4,
         "layer_norm_epsilon": EPS, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
        GPT_J,
    ),
    Family(
        "gpt-neox",
        {**BLUEPRINT, "layout": {"parallel": {"shared_norm": False}}, "position": {"rope": {"dims": 4, "base": 1000}}},
        "GPTNeoXForCausalLM",
        {**SIZES, "intermediate_size": 48, "layer_norm_eps": EPS,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}},
        NEOX,
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
        falcon({"parallel.norm": "input_layernorm"}, "self_attention.query_key_value"),
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
        falcon(
            {"parallel.norms.attention": "ln_attn", "parallel.norms.feedforward": "ln_mlp"},
            From(("self_attention.query_key_value",), by_kv_head),
        ),
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
        BLOOM,
    ),
)  # fmt: skip
