"""gpt-oss: experts with biases and a clamped gate, attention sinks, a window in every other layer."""

from __future__ import annotations

from dataclasses import replace

from explorer.huggingface.components import Component, Fields, biases, component, dropout
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.layers import FULL, SLIDING, layer_types, stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names, Rope, read_rope
from explorer.huggingface.sizes import read_sizes

THETA = 150_000.0
STRETCHED = component("yarn", factor=32, original=4096, truncate=False)


def gpt_oss(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=201088, dim=2880, layers=36, heads=64, kv_heads=8, head_dim=64)
    config.only("hidden_act", "silu", because="the model reads swiglu_alpha and swiglu_limit")
    config.ignore("initial_context_length")
    block, of_attention, of_experts = biases(config.flag("attention_bias", default=True), True)
    gate = component(
        "swiglu_clamped",
        limit=config.number("swiglu_limit", default=7.0),
        alpha=config.number("swiglu_alpha", default=1.702),
        up_offset=1,
    )
    fields: Fields = {
        **sizes.fields(),
        "norm": rmsnorm(config, 1e-5, cast="gemma"),
        "position": _rope(config, sizes.head_dim).position(sizes.head_dim),
        "attention": sizes.attention(sinks=True, bias=of_attention),
        "feedforward": _experts(config, of_experts),
        "activation": gate,
        "bias": block,
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }
    default = [SLIDING if layer % 2 == 0 else FULL for layer in range(sizes.layers)]
    types = layer_types(config, sizes.layers, default, {SLIDING: "sliding", FULL: "full"})
    window = config.whole("sliding_window", default=128)
    return stacked(fields, types, {"sliding": {"window": window}, "full": {}})


def _rope(config: ConfigReader, head_dim: int) -> Rope:
    """Without a word on it, it is that of the released models."""
    rope = read_rope(config, head_dim, Names(theta=THETA), longest=131072)
    is_said = config.has("rope_scaling") or config.has("rope_parameters")
    return rope if is_said else replace(rope, scaling=STRETCHED)


def _experts(config: ConfigReader, bias: bool | None) -> Component:
    return component(
        "moe",
        experts=config.whole("num_local_experts", "num_experts", default=128),
        top_k=config.whole("num_experts_per_tok", "experts_per_token", default=4),
        hidden=config.whole("intermediate_size", default=2880),
        bias=bias,
    )
