"""GPT-2: pre-norm LayerNorm, learned positions, biases everywhere, one table for input and output."""

from __future__ import annotations

from explorer.huggingface.activations import plain
from explorer.huggingface.components import Fields, component, dropout
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import GPT_NAMES, read_sizes


def gpt2(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=50257, dim=768, layers=12, heads=12, names=GPT_NAMES)
    config.only("scale_attn_by_inverse_layer_idx", False)
    config.only("add_cross_attention", False)
    config.ignore("reorder_and_upcast_attn", "n_ctx")  # the order of products and their number format; a length
    scaled = config.flag("scale_attn_weights", default=True)
    return {
        **sizes.fields(),
        "norm": component("layernorm", eps=config.number("layer_norm_epsilon", default=1e-5)),
        "position": component(
            "learned", max_tokens=config.whole("n_positions", "max_position_embeddings", default=1024)
        ),
        "attention": sizes.attention(scale=None if scaled else 1),
        "feedforward": component("dense", hidden=config.optional_whole("n_inner") or 4 * sizes.dim),
        "activation": plain(config, "activation_function", "gelu_new"),
        "bias": True,
        "dropout": pdrops(config, default=0.1),
        "layers": sizes.layers,
        "tie_embeddings": config.flag("tie_word_embeddings", default=True),
    }


def pdrops(config: ConfigReader, default: float) -> Fields | None:
    """Dropout as GPT-2 and GPT-J name it."""
    names = {"embedding": "embd_pdrop", "attention": "attn_pdrop", "sublayer": "resid_pdrop"}
    return dropout(**{ours: config.rate(theirs, default=default) for ours, theirs in names.items()})
