"""GPT-J: attention and feed-forward side by side behind one norm, rotary positions on part of a head."""

from __future__ import annotations

from explorer.huggingface.activations import plain
from explorer.huggingface.components import Fields, component
from explorer.huggingface.configs.gpt2 import pdrops
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import GPT_NAMES, Sizes, read_sizes


def gptj(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=50400, dim=4096, layers=28, heads=16, names=GPT_NAMES)
    config.only("scale_attn_weights", True)
    config.only("rotary", True)
    config.ignore("n_positions", "max_position_embeddings", "n_ctx")
    hidden = config.optional_whole("n_inner") or 4 * sizes.dim
    return {
        **sizes.fields(),
        "norm": component("layernorm", eps=config.number("layer_norm_epsilon", default=1e-5)),
        "layout": {"parallel": {"shared_norm": True}},
        "position": component("rope", dims=_dims(config, sizes), pairing="interleaved"),
        "attention": sizes.attention(),
        "feedforward": component("dense", hidden=hidden, bias=True),
        "activation": plain(config, "activation_function", "gelu_new"),
        "dropout": pdrops(config, default=0.0),
        "layers": sizes.layers,
        "head": component("lm", bias=True),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }


def _dims(config: ConfigReader, sizes: Sizes) -> int | None:
    dims = config.whole("rotary_dim", default=64, least=2)
    if dims % 2 or dims > sizes.head_dim:
        config.problem("rotary_dim", f"{dims} must be even and at most the {sizes.head_dim} channels of a head")
    return None if dims == sizes.head_dim else dims
