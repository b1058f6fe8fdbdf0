"""Kimi Linear: three layers of Kimi delta attention, then one of latent attention, none with positions."""

from __future__ import annotations

from typing import Any

from explorer.huggingface.activations import gated
from explorer.huggingface.components import Component, Fields, component, dropout
from explorer.huggingface.configs.deepseek import head_fields, latent_attention, read_mla
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.layers import FULL, LINEAR, layer_types, named, stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import Sizes, read_sizes

NORM_EPS = 1e-5  # of the norm inside kda
FEEDFORWARDS = {"sparse": "", "dense": "_dense"}


def kimi_linear(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=163840, dim=2304, layers=27, heads=32)
    _refuse(config)
    mla = read_mla(config, sizes, q_rank=None)
    linear = config.nested("linear_attn_config")
    kda = _kda(config, linear)
    fields: Fields = {
        **head_fields(sizes, mla),
        "norm": rmsnorm(config, NORM_EPS),
        "position": "none",
        "feedforward": _experts(config),
        "activation": gated(config),
        "dropout": dropout(attention=config.rate("attention_dropout")),
    }
    attentions: dict[str, Fields] = {"kda": kda, "mla": {"attention": latent_attention(mla)}}
    dense = {"feedforward": component("dense", hidden=config.whole("intermediate_size", default=9216))}
    layers = _layers(config, linear, sizes)
    blocks = {kind + end: {**attentions[kind], **(dense if end else {})} for kind, end in sorted(set(layers))}
    return stacked(fields, [kind + end for kind, end in layers], blocks)


def _refuse(config: ConfigReader) -> None:
    config.only("rms_norm_eps", NORM_EPS, because="kda has that one inside")
    config.only("hidden_act", "silu", "swish", because="kda has it inside")
    config.only("attention_bias", False)
    config.only("moe_layer_freq", 1)
    config.only("moe_router_activation_func", "sigmoid")
    config.only("use_grouped_topk", True)
    config.only("mla_use_nope", True)
    config.only("num_nextn_predict_layers", 0)
    config.only("tie_word_embeddings", False, because="the model of transformers never ties its tables")
    config.ignore("head_dim", "model_max_length", "max_position_embeddings", "rope_theta", "rope_scaling")


def _experts(config: ConfigReader) -> Component:
    return component(
        "moe",
        experts=config.whole("num_experts", "num_local_experts", default=256),
        top_k=config.whole("num_experts_per_token", "num_experts_per_tok", default=8),
        hidden=config.whole("moe_intermediate_size", default=1024),
        shared=config.whole("num_shared_experts", "n_shared_experts", default=1, least=0),
        router="sigmoid",
        selection_bias=True,
        renormalise=config.flag("moe_renormalize", "norm_topk_prob", default=True),
        scale=config.number("routed_scaling_factor", default=2.446),
        groups=config.whole("num_expert_group", "n_group", default=1),
        top_groups=config.whole("topk_group", default=1),
    )


def _kda(config: ConfigReader, linear: ConfigReader | None) -> Fields:
    """Changes of a layer with delta attention. Its sizes stand in the config or, as released, in a mapping."""

    def size(inner: str, name: str, default: int) -> int:
        own = config.whole(name, default=default)
        return linear.whole(inner, default=own) if linear else own

    return {
        "heads": size("num_heads", "linear_num_heads", 32),
        "head_dim": size("head_dim", "linear_head_dim", 128),
        "attention": component("kda", conv=size("short_conv_kernel_size", "linear_conv_kernel_dim", 4)),
    }


def _layers(config: ConfigReader, linear: ConfigReader | None, sizes: Sizes) -> list[tuple[str, str]]:
    """Attention and feed-forward of each layer."""
    count = sizes.layers
    default = _released_types(linear, count) or [FULL if i and i % 4 == 0 else LINEAR for i in range(count)]
    kinds = layer_types(config, count, default, {LINEAR: "kda", FULL: "mla"})
    first = config.whole("first_k_dense_replace", default=1, least=0)
    feedforwards = config.texts("mlp_layer_types") or ["dense" if i < first else "sparse" for i in range(count)]
    return list(zip(kinds, named(config, "mlp_layer_types", feedforwards, count, FEEDFORWARDS), strict=False))


def _released_types(linear: ConfigReader | None, count: int) -> list[str]:
    """As lists of layers counted from 1; empty where there are none."""
    listed: dict[str, Any] = {}
    if linear is not None:
        listed = {FULL: linear.wholes("full_attn_layers"), LINEAR: linear.wholes("kda_layers")}
    if linear is None or None in listed.values():
        return []
    kinds = {layer: kind for kind, layers in listed.items() for layer in layers}
    if sorted(layer for layers in listed.values() for layer in layers) != list(range(1, count + 1)):
        linear.problem("full_attn_layers", f"and kda_layers must name each of the {count} layers once, counted from 1")
        return []
    return [kinds[layer + 1] for layer in range(count)]
