"""An encoder with a decoder, and relative positions as a bias of the scores."""

from __future__ import annotations

from tests.parity.harness import Family
from tests.parity.tasks import TRANSLATOR

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

T5 = (
    Family(
        "t5",
        {**BLUEPRINT, "activation": "relu", "head": {"lm": {"scale": "rsqrt_dim"}}},
        "T5ForConditionalGeneration",
        SIZES,
        TRANSLATOR,
    ),
    Family(
        "t5-v1.1",  # its head is tied here as transformers 5 ties it, but not scaled
        {**BLUEPRINT, "activation": "geglu_tanh"},
        "T5ForConditionalGeneration",
        {**SIZES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        TRANSLATOR,
    ),
)
