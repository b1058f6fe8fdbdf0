"""Falcon: 7B (one norm), 40B and 180B (two norms), both side by side; Falcon-RW (in turn, with ALiBi)."""

from __future__ import annotations

from explorer.huggingface.activations import plain
from explorer.huggingface.components import Component, Fields, component
from explorer.huggingface.reader import ConfigReader, shown
from explorer.huggingface.rope import read_rope
from explorer.huggingface.sizes import Names, Sizes, read_sizes

NAMES = Names(
    dim=("hidden_size", "n_embed"),
    kv_heads=(),
    head_dim=(),
)


def falcon(config: ConfigReader) -> Fields:
    kv_heads = _kv_heads(config)
    sizes = read_sizes(config, vocab=65024, dim=4544, layers=32, heads=71, kv_heads=kv_heads, names=NAMES)
    config.only("apply_residual_connection_post_layernorm", False)
    config.only("ff_factor", 4)
    for name in ("hidden_dropout", "attention_dropout"):
        config.only(name, 0, because="Falcon drops other sums than a blueprint does")
    bias = config.flag("bias")
    hidden = config.optional_whole("ffn_hidden_size") or 4 * sizes.dim
    return {
        **sizes.fields(),
        "norm": component("layernorm", eps=config.number("layer_norm_epsilon", default=1e-5)),
        "layout": _layout(config),
        "position": _position(config, sizes),
        "attention": sizes.attention(),
        "feedforward": component("dense", hidden=hidden),
        "activation": plain(config, "activation", "gelu"),
        "bias": bias,
        "layers": sizes.layers,
        "tie_embeddings": config.flag("tie_word_embeddings", default=True),
    }


def _kv_heads(config: ConfigReader) -> int | None:
    """None: as many as heads."""
    written = config.optional_whole("num_kv_heads")
    if config.flag("new_decoder_architecture"):
        config.ignore("multi_query")
        return written
    return 1 if config.flag("multi_query", default=True) else None


def _layout(config: ConfigReader) -> Component:
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn", default=True)
    norms = config.optional_whole("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not parallel:
        config.problem("parallel_attn", "false is not supported with new_decoder_architecture: the model reads no norm")
    if norms > 2 or (norms == 2 and not new):
        allowed = "1 or 2" if new else "1 without new_decoder_architecture"
        config.problem("num_ln_in_parallel_attn", f"{shown(norms)} is not supported, only {allowed}")
    return {"parallel": {"shared_norm": norms == 1}} if parallel else "sequential"


def _position(config: ConfigReader, sizes: Sizes) -> Component:
    if not config.flag("alibi"):
        return read_rope(config, sizes.head_dim).position(sizes.head_dim)
    config.ignore("max_position_embeddings", "rope_theta", "rope_scaling", "rope_parameters")
    config.comment("position", "Falcon divides the bias by sqrt(head_dim) with the scores")
    return component("alibi", scale=sizes.head_dim**-0.5)
