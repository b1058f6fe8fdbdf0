"""Gemma 2 and 3: norms around each sublayer that keep the gain's difference from one, windows in most layers."""

from __future__ import annotations

from typing import Any

from explorer.huggingface.activations import gated
from explorer.huggingface.components import Component, Fields, biases, component, dropout
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.layers import FULL, SLIDING, layer_types, stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names, Rope, first_of, read_rope, rotation
from explorer.huggingface.sizes import Sizes, read_sizes

BLOCKS = {SLIDING: "local", FULL: "global"}
LONGEST_2, LONGEST_3 = 8192, 131072
GLOBAL, LOCAL = Names(theta=1_000_000.0), Names(theta=10_000.0, theta_name="rope_local_base_freq")


def gemma2(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=256000, dim=2304, layers=26, heads=8, kv_heads=4, head_dim=256)
    position = read_rope(config, sizes.head_dim, longest=LONGEST_2).position(sizes.head_dim)
    softcap = config.optional_number("attn_logit_softcapping", default=50.0)
    fields = _fields(config, sizes, position, final_softcap=30.0, softcap=softcap)
    config.ignore("sliding_window_size")
    return _windowed(config, fields, sizes, 2, {})


def gemma3(config: ConfigReader) -> Fields:
    """The text model of one that also sees."""
    text = config.nested("text_config")
    config.ignore("vision_config", "mm_tokens_per_image")
    config.ignore(*(f"{what}_token_{end}" for what in ("boi", "eoi", "image") for end in ("index", "id")))
    config.remark("the text model alone: the vision tower and the map from it are left out")
    if text is None:
        config.problem("text_config", "is missing: a mapping")
        return gemma3_text(config)
    text.only("model_type", "gemma3_text")
    config.only("tie_word_embeddings", text.flag("tie_word_embeddings", default=True), because="text_config says so")
    return gemma3_text(text)


def gemma3_text(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=262208, dim=2304, layers=26, heads=8, kv_heads=4, head_dim=256)
    config.only("attn_logit_softcapping", None, because="the model does not read it")
    full, local = _rotations(config, sizes.head_dim)
    position, local_position = (rope.position(sizes.head_dim) for rope in (full, local))
    fields = _fields(config, sizes, position, final_softcap=None, qk_norm=_norm(config))
    pattern = config.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return _windowed(config, fields, sizes, pattern, {"position": local_position})


def _norm(config: ConfigReader) -> Component:
    return rmsnorm(config, 1e-6, offset=1, cast="gemma")


def _fields(
    config: ConfigReader, sizes: Sizes, position: Component, final_softcap: float | None, **attention: Any
) -> Fields:
    """What both have; final_softcap: its default."""
    config.only("use_bidirectional_attention", False)
    config.ignore("hidden_act")  # beside hidden_activation, which the model reads
    scalar = config.number("query_pre_attn_scalar", default=256)
    scale = None if scalar == sizes.head_dim else scalar**-0.5
    if scale is not None:
        config.comment("attention", f"scale: {scalar:g}^-1/2, where head_dim is {sizes.head_dim}")
    block, of_attention, _ = biases(config.flag("attention_bias"), False)
    softcap = config.optional_number("final_logit_softcapping", default=final_softcap)
    return {
        **sizes.fields(),
        "norm": _norm(config),
        "placement": "sandwich",
        "position": position,
        "attention": sizes.attention(scale=scale, bias=of_attention, **attention),
        "feedforward": component("dense", hidden=config.whole("intermediate_size", default=9216)),
        "activation": gated(config, "hidden_activation", "gelu_pytorch_tanh"),
        "bias": block,
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "embedding": {"scale": "sqrt_dim"},
        "head": component("lm", softcap=softcap),
        "tie_embeddings": config.flag("tie_word_embeddings", default=True),
    }


def _windowed(config: ConfigReader, fields: Fields, sizes: Sizes, pattern: int, local: Fields) -> Fields:
    """Every pattern-th layer sees all tokens, the others a window."""
    default = [SLIDING if (layer + 1) % pattern else FULL for layer in range(sizes.layers)]
    types = layer_types(config, sizes.layers, default, BLOCKS)
    window = config.whole("sliding_window", default=4096)
    return stacked(fields, types, {"local": {"window": window, **local}, "global": {}})


def _rotations(config: ConfigReader, head_dim: int) -> tuple[Rope, Rope]:
    """Of global and of local layers, each in a mapping of its own or, in older configs, in fields beside each other."""
    new, old = config.nested("rope_parameters"), config.nested("rope_scaling")
    full, local = (new.nested(kind) if new else None for kind in (FULL, SLIDING))
    return (
        rotation(config, first_of(config, old, full), head_dim, GLOBAL, LONGEST_3),
        rotation(config, local, head_dim, LOCAL, LONGEST_3),
    )
