"""BLOOM: pre-norm LayerNorm, ALiBi, a norm behind the input table."""

from __future__ import annotations

from explorer.huggingface.components import Fields, component, dropout
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import Names, read_sizes

NAMES = Names(
    dim=("hidden_size", "n_embed"), layers=("n_layer", "num_hidden_layers"), heads=("n_head", "num_attention_heads")
)


def bloom(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=250880, dim=64, layers=2, heads=8, names=NAMES)
    config.only("apply_residual_connection_post_layernorm", False)
    config.only("skip_bias_add", True)
    config.only("skip_bias_add_qkv", False)
    config.ignore("seq_length", "offset_alibi")
    rates = {"attention": config.rate("attention_dropout"), "sublayer": config.rate("hidden_dropout")}
    return {
        **sizes.fields(),
        "norm": component("layernorm", eps=config.number("layer_norm_epsilon", default=1e-5)),
        "position": "alibi",
        "attention": sizes.attention(),
        "feedforward": component("dense", hidden=4 * sizes.dim),
        "activation": "gelu_tanh",
        "bias": True,
        "dropout": dropout(**rates),
        "layers": sizes.layers,
        "embedding": {"norm": True},
        "tie_embeddings": config.flag("tie_word_embeddings", default=True),
    }
