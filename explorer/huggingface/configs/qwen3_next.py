"""Qwen3-Next: three layers of gated delta rule, then one of gated attention, all with experts."""

from __future__ import annotations

from explorer.huggingface.activations import gated
from explorer.huggingface.components import Component, Fields, biases, component, dropout
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.configs.qwen3_moe import experts, sparse_layers
from explorer.huggingface.layers import FULL, LINEAR, layer_types, stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names, read_rope
from explorer.huggingface.sizes import Sizes, read_sizes

NORM_EPS = 1e-6  # of the norm inside gated_deltanet


def qwen3_next(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=151936, dim=2048, layers=48, heads=16, kv_heads=2, head_dim=256)
    config.only("rms_norm_eps", NORM_EPS, because="gated_deltanet has that one inside")
    config.only("use_sliding_window", False)
    config.only("hidden_act", "silu", "swish", because="gated_deltanet has it inside")
    rope = read_rope(config, sizes.head_dim, Names(partial=0.25), longest=32768)
    block, of_attention, _ = biases(config.flag("attention_bias"), False)
    width, hidden = (config.whole(f"{name}_intermediate_size", default=512) for name in ("shared_expert", "moe"))
    shared = {"shared": 1, "shared_hidden": None if width == hidden else width, "shared_gate": True}
    norm = rmsnorm(config, NORM_EPS, offset=1, cast="gemma")
    fields: Fields = {
        **sizes.fields(),
        "norm": norm,
        "position": rope.position(sizes.head_dim),
        "attention": _delta(config),
        "feedforward": experts(config, hidden=512, count=512, top_k=10, renormalise=True, **shared),
        "activation": gated(config),
        "bias": block,
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }
    full = {"attention": sizes.attention(qk_norm=norm, gate=True, bias=of_attention)}
    dense = {"feedforward": component("dense", hidden=config.whole("intermediate_size", default=5632))}
    blocks = {"linear": {}, "full": full, "linear_dense": dense, "full_dense": {**full, **dense}}
    return stacked(fields, _layers(config, sizes), blocks)


def _delta(config: ConfigReader) -> Component:
    return component(
        "gated_deltanet",
        conv=config.whole("linear_conv_kernel_dim", default=4),
        key_heads=config.whole("linear_num_key_heads", default=16),
        value_heads=config.whole("linear_num_value_heads", default=32),
        key_dim=config.whole("linear_key_head_dim", default=128),
        value_dim=config.whole("linear_value_head_dim", default=128),
    )


def _layers(config: ConfigReader, sizes: Sizes) -> list[str]:
    """The block of each layer."""
    interval = config.whole("full_attention_interval", default=4)
    default = [LINEAR if (layer + 1) % interval else FULL for layer in range(sizes.layers)]
    types = layer_types(config, sizes.layers, default, {LINEAR: "linear", FULL: "full"})
    sparse = sparse_layers(config, sizes.layers)
    return [kind if experts else f"{kind}_dense" for kind, experts in zip(types, sparse, strict=False)]
