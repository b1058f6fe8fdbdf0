"""Cohere (Command R): attention and feed-forward side by side behind one LayerNorm without a shift."""

from __future__ import annotations

from explorer.huggingface.components import Fields, component
from explorer.huggingface.configs.llama import decoder
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names
from explorer.huggingface.sizes import read_sizes

ROPE = Names(theta=500_000.0)


def cohere(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=256000, dim=8192, layers=40, heads=64)
    norm = component("layernorm", eps=config.number("layer_norm_eps", default=1e-5), bias=False)
    normed: Fields = {"qk_norm": norm, "qk_norm_over": "each_head"} if config.flag("use_qk_norm") else {}
    biased = config.flag("attention_bias")
    fields = decoder(
        config, sizes, norm, hidden=22528, rope=ROPE, pairing="interleaved", attention_bias=biased, **normed
    )
    return {
        **fields,
        "layout": {"parallel": {"shared_norm": True}},
        "head": component("lm", scale=config.number("logit_scale", default=0.0625)),
        "tie_embeddings": config.flag("tie_word_embeddings", default=True),
        "layers": sizes.layers,
    }
