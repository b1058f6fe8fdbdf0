"""Llama and its kin: pre-norm RMSNorm, rotary positions, a gated feed-forward; and the sizes they share with others."""

from __future__ import annotations

from typing import Any

from explorer.huggingface.activations import gated
from explorer.huggingface.components import Component, Fields, biases, component, dropout
from explorer.huggingface.layers import FULL, SLIDING, layer_types, stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names, read_rope
from explorer.huggingface.sizes import Sizes, read_sizes


def llama(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=32000, dim=4096, layers=32, heads=32)
    config.ignore("max_sequence_length")
    biased, mlp_biased = config.flag("attention_bias"), config.flag("mlp_bias")
    fields = decoder(config, sizes, rmsnorm(config, 1e-6), hidden=11008, attention_bias=biased, mlp_bias=mlp_biased)
    return {**fields, "layers": sizes.layers}


def mistral(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=32000, dim=4096, layers=32, heads=32, kv_heads=8)
    fields = decoder(config, sizes, rmsnorm(config, 1e-6), hidden=14336, longest=131072)
    return {**fields, "layers": sizes.layers, "window": config.optional_whole("sliding_window", default=4096)}


def qwen2(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=151936, dim=4096, layers=32, heads=32, kv_heads=32)
    config.only("use_mrope", False)
    fields = decoder(config, sizes, rmsnorm(config, 1e-6), hidden=22016, longest=32768, attention_bias="qkv")
    return windowed(config, fields, sizes.layers)


def qwen3(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=151936, dim=4096, layers=32, heads=32, kv_heads=32, head_dim=128)
    norm, biased = rmsnorm(config, 1e-6), config.flag("attention_bias")
    fields = decoder(config, sizes, norm, hidden=22016, longest=32768, attention_bias=biased, qk_norm=norm)
    return windowed(config, fields, sizes.layers)


def olmo2(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=50304, dim=4096, layers=32, heads=32)
    norm, biased = rmsnorm(config, 1e-5, cast="gemma"), config.flag("attention_bias")
    fields = decoder(config, sizes, norm, hidden=11008, attention_bias=biased, qk_norm=norm, qk_norm_over="all")
    return {**fields, "placement": "res_post", "layers": sizes.layers}


def phi3(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=32064, dim=3072, layers=32, heads=32)
    config.only("embd_pdrop", 0, because="the model does not read it")
    config.ignore("original_max_position_embeddings")
    fields = decoder(config, sizes, rmsnorm(config, 1e-5), hidden=8192, rope=Names(partial=1.0), longest=4096)
    return {
        **fields,
        "window": config.optional_whole("sliding_window"),
        "dropout": dropout(attention=config.rate("attention_dropout"), sublayer=config.rate("resid_pdrop")),
        "layers": sizes.layers,
    }


def decoder(
    config: ConfigReader,
    sizes: Sizes,
    norm: Component,
    *,
    hidden: int,
    longest: int = 2048,
    rope: Names | None = None,
    pairing: str = "half",
    attention_bias: bool | str = False,
    mlp_bias: bool = False,
    **attention: Any,
) -> Fields:
    """The fields of a dense model but for `layers`. hidden, longest: defaults. attention: its other parameters."""
    block, of_attention, of_feedforward = biases(attention_bias, mlp_bias)
    width = config.whole("intermediate_size", default=hidden)
    return {
        **sizes.fields(),
        "norm": norm,
        "position": read_rope(config, sizes.head_dim, rope, longest).position(sizes.head_dim, pairing=pairing),
        "attention": sizes.attention(bias=of_attention, **attention),
        "feedforward": component("dense", hidden=width, bias=of_feedforward),
        "activation": gated(config),
        "bias": block,
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }


def rmsnorm(config: ConfigReader, eps: float, **parameters: Any) -> Component:
    """eps: its default."""
    return component("rmsnorm", eps=config.number("rms_norm_eps", default=eps), **parameters)


def windowed(config: ConfigReader, fields: Fields, layers: int) -> Fields:
    """Layers of Qwen2 and Qwen3: those from `max_window_layers` on see a window, where it is used at all."""
    used, full = config.flag("use_sliding_window"), config.whole("max_window_layers", default=28, least=0)
    window = config.optional_whole("sliding_window", default=4096) if used else None
    config.ignore("sliding_window")
    default = [SLIDING if window and layer >= full else FULL for layer in range(layers)]
    types = layer_types(config, layers, default, {FULL: "full", SLIDING: "window"})
    if window is None and "window" in types:
        config.problem("layer_types", "has sliding layers, and the config no sliding_window in use")
    return stacked(fields, types, {"full": {}, "window": {"window": window}})
