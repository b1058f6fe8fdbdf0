"""An encoder with a decoder, and relative positions as a bias of the scores."""

from __future__ import annotations

from tests.parity.harness import Family
from tests.parity.tasks import TRANSLATOR
from tests.parity.weights import Names, layers, rows

EPS = 1e-3  # large enough that one in another place shows
BLUEPRINT = {
    "dim": 32,
    "heads": 4,
    "head_dim": 10,
    "norm": {"rmsnorm": {"eps": EPS}},
    "position": {"t5_bias": {"buckets": 8, "max_distance": 10}},  # few enough that far tokens share the last bucket
    "attention": {"mha": {"scale": 1}},
    "feedforward": {"dense": {"hidden": 48}},
    "tie_embeddings": True,
    "encoder": {"layers": 3},
    "decoder": {"layers": 2},
}
SIZES = {
    "d_model": 32,
    "d_kv": 10,
    "d_ff": 48,
    "num_heads": 4,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "layer_norm_epsilon": EPS,
    "dropout_rate": 0.0,
}


def attention(ours: str, layer: int, theirs: str) -> Names:
    q, k, v, out = (f"layer.{layer}.{theirs}.{name}" for name in "qkvo")
    return {
        f"{ours}.norm": f"layer.{layer}.layer_norm",
        f"{ours}.branch.qkv": rows(q, k, v),
        f"{ours}.branch.out": out,
    }


def feedforward(layer: int, *up: str) -> Names:
    return {
        "feedforward.norm": f"layer.{layer}.layer_norm",
        "feedforward.branch.up": rows(*(f"layer.{layer}.DenseReluDense.{name}" for name in up)),
        "feedforward.branch.down": f"layer.{layer}.DenseReluDense.wo",
    }


def names(*up: str) -> Names:
    encoder = {**attention("attention", 0, "SelfAttention"), **feedforward(1, *up)}
    decoder = {
        **attention("attention", 0, "SelfAttention"),
        **attention("cross_attention", 1, "EncDecAttention"),
        **feedforward(2, *up),
    }
    return {
        "embedding.table": "shared",
        "encoder.positions.0.table": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "encoder.final_norm": "encoder.final_layer_norm",
        "stack.positions.0.table": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
        "stack.final_norm": "decoder.final_layer_norm",
        **layers("encoder.layers", "encoder.block", [encoder] * 3),
        **layers("stack.layers", "decoder.block", [decoder] * 2),
    }


T5 = (
    Family(
        "t5",
        {**BLUEPRINT, "activation": "relu", "head": {"lm": {"scale": "rsqrt_dim"}}},
        "T5ForConditionalGeneration",
        SIZES,
        names("wi"),
        TRANSLATOR,
    ),
    Family(
        "t5-v1.1",  # its head is tied here as transformers 5 ties it, but not scaled
        {**BLUEPRINT, "activation": "geglu_tanh"},
        "T5ForConditionalGeneration",
        {**SIZES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        names("wi_0", "wi_1"),
        TRANSLATOR,
    ),
)
