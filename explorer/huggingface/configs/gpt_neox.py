"""GPT-NeoX (Pythia): attention and feed-forward side by side with a norm each, or in turn."""

from __future__ import annotations

from explorer.huggingface.activations import plain
from explorer.huggingface.components import Fields, biases, component, dropout
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names, read_rope
from explorer.huggingface.sizes import read_sizes

ROPE = Names(partial=0.25, theta_name="rotary_emb_base", partial_name="rotary_pct")


def gpt_neox(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=50432, dim=6144, layers=44, heads=64)
    parallel = config.flag("use_parallel_residual", default=True)
    block, of_attention, of_feedforward = biases(config.flag("attention_bias", default=True), True)
    config.ignore("is_decoder")
    hidden = config.rate("hidden_dropout")
    return {
        **sizes.fields(),
        "norm": component("layernorm", eps=config.number("layer_norm_eps", default=1e-5)),
        "layout": {"parallel": {"shared_norm": False}} if parallel else "sequential",
        "position": read_rope(config, sizes.head_dim, ROPE).position(sizes.head_dim),
        "attention": sizes.attention(bias=of_attention),
        "feedforward": component("dense", hidden=config.whole("intermediate_size", default=24576), bias=of_feedforward),
        "activation": plain(config, "hidden_act", "gelu"),
        "bias": block,
        "dropout": dropout(embedding=hidden, attention=config.rate("attention_dropout"), sublayer=hidden),
        "layers": sizes.layers,
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }
