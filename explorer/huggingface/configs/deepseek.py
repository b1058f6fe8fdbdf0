"""DeepSeek-V2 and V3 (and Kimi K2): latent attention, then experts in all layers but the first ones."""

from __future__ import annotations

from typing import Any

from explorer.huggingface.activations import gated
from explorer.huggingface.components import Component, Fields, biases, component, dropout
from explorer.huggingface.configs.llama import rmsnorm
from explorer.huggingface.layers import stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Rope, read_rope
from explorer.huggingface.sizes import Sizes, read_sizes


def deepseek_v2(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=102400, dim=4096, layers=32, heads=32)
    config.only("norm_topk_prob", False)
    config.only("scoring_func", "softmax")
    config.only("mlp_bias", False)
    grouped = config.choice("topk_method", of={"greedy": False, "group_limited_greedy": True}, default="greedy")
    groups = _groups(config, None, None)
    experts = component(
        "moe",
        **_experts(config, hidden=1407, count=64, top_k=None, shared=2, scale=1.0),
        renormalise=False,
        **({"group_score": "max", **groups} if grouped else {}),
    )
    return _model(config, sizes, experts, hidden=11008, dense=0, longest=2048, pairing="interleaved")


def deepseek_v3(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=129280, dim=7168, layers=61, heads=128)
    config.only("topk_method", "noaux_tc")
    config.only("scoring_func", "sigmoid")
    if config.whole("num_nextn_predict_layers", "num_mtp_layers", default=1, least=0):
        config.remark("the main model: layers that predict further tokens are left out")
    experts = component(
        "moe",
        **_experts(config, hidden=2048, count=256, top_k=8, shared=1, scale=2.5),
        router="sigmoid",
        selection_bias=True,
        renormalise=config.flag("norm_topk_prob", default=True),
        **_groups(config, 8, 4),
    )
    pairing = "interleaved" if config.flag("rope_interleave", default=True) else "half"
    return _model(config, sizes, experts, hidden=18432, dense=3, longest=4096, pairing=pairing)


def _groups(config: ConfigReader, groups: int | None, best: int | None) -> dict[str, int]:
    return {
        "groups": config.optional_whole("n_group", default=groups) or 1,
        "top_groups": config.optional_whole("topk_group", default=best) or 1,
    }


def _experts(
    config: ConfigReader, *, hidden: int, count: int, top_k: int | None, shared: int, scale: float
) -> dict[str, Any]:
    """The keywords are defaults; top_k None: there is none."""
    config.only("moe_layer_freq", 1)
    names = ("num_experts_per_tok",)
    return {
        "experts": config.whole("n_routed_experts", "num_local_experts", "num_experts", default=count),
        "top_k": config.whole(*names) if top_k is None else config.whole(*names, default=top_k),
        "hidden": config.whole("moe_intermediate_size", default=hidden),
        "shared": config.whole("n_shared_experts", default=shared, least=0),
        "scale": config.number("routed_scaling_factor", default=scale),
    }


def _model(
    config: ConfigReader, sizes: Sizes, experts: Component, *, hidden: int, dense: int, longest: int, pairing: str
) -> Fields:
    """hidden, dense (the number of layers without experts), longest: defaults."""
    mla = read_mla(config, sizes)
    rope_dim = mla["rope_dim"]
    rope = read_rope(config, rope_dim, longest=longest)
    block, of_attention, _ = biases(config.flag("attention_bias"), False)
    _check_bias(config, mla)
    fields: Fields = {
        **head_fields(sizes, mla),
        "norm": rmsnorm(config, 1e-6),
        "position": rope.position(rope_dim, pairing=pairing),
        "attention": latent_attention(mla, scale=_scale(config, rope, mla), bias=of_attention),
        "feedforward": experts,
        "activation": gated(config),
        "bias": block,
        "dropout": dropout(attention=config.rate("attention_dropout")),
        "tie_embeddings": config.flag("tie_word_embeddings"),
    }
    first = config.whole("first_k_dense_replace", default=dense, least=0)
    width = config.whole("intermediate_size", default=hidden)
    blocks: dict[str, Fields] = {"dense": {"feedforward": component("dense", hidden=width)}, "experts": {}}
    return stacked(fields, ["dense" if layer < first else "experts" for layer in range(sizes.layers)], blocks)


def read_mla(config: ConfigReader, sizes: Sizes, q_rank: int | None = 1536) -> dict[str, Any]:
    """The widths of latent attention, q_rank None: no latent of q; the keyword is its default."""
    config.only("num_key_value_heads", sizes.heads, because="all heads of latent attention have keys of their own")
    found: dict[str, Any] = {
        "q_rank": config.optional_whole("q_lora_rank", default=q_rank),
        "kv_rank": config.whole("kv_lora_rank", default=512),
        "rope_dim": config.whole("qk_rope_head_dim", default=64),
        "nope_dim": config.whole("qk_nope_head_dim", default=128),
        "value_dim": config.whole("v_head_dim", default=128),
    }
    config.derived("head_dim", found["rope_dim"])
    config.derived("qk_head_dim", found["nope_dim"] + found["rope_dim"])
    return found


def head_fields(sizes: Sizes, mla: dict[str, Any]) -> Fields:
    """Sizes with the part of a head that is not rotated as its width."""
    return {**sizes.fields(), "head_dim": None if mla["nope_dim"] * sizes.heads == sizes.dim else mla["nope_dim"]}


def latent_attention(mla: dict[str, Any], **parameters: Any) -> Component:
    widths = {name: mla[name] for name in ("q_rank", "kv_rank", "rope_dim")}
    value_dim = None if mla["value_dim"] == mla["nope_dim"] else mla["value_dim"]
    return component("mla", **widths, value_dim=value_dim, **parameters)


def _check_bias(config: ConfigReader, mla: dict[str, Any]) -> None:
    if config.flag("attention_bias") and mla["q_rank"] is None:
        message = "true is not supported without q_lora_rank: the map to q would be the one without a bias"
        config.problem("attention_bias", message)


def _scale(config: ConfigReader, rope: Rope, mla: dict[str, Any]) -> float | None:
    """Of the scores; None: 1 / sqrt of the width of q."""
    if rope.score_factor == 1:
        return None
    width = mla["nope_dim"] + mla["rope_dim"]
    config.comment("attention", f"scale: {width}^-1/2 times YaRN's {rope.score_factor**0.5:.4g}^2 for mscale_all_dim")
    return float(width**-0.5 * rope.score_factor)
