"""Qwen3-MoE: Qwen3 with a mixture of experts in all layers or in some."""

from __future__ import annotations

from explorer.huggingface.components import Component, Fields, component
from explorer.huggingface.configs.llama import decoder, rmsnorm
from explorer.huggingface.layers import stacked
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.sizes import read_sizes


def qwen3_moe(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=151936, dim=2048, layers=24, heads=32, kv_heads=4)
    norm, biased = rmsnorm(config, 1e-6), config.flag("attention_bias")
    fields = decoder(config, sizes, norm, hidden=6144, longest=32768, attention_bias=biased, qk_norm=norm)
    used, window = config.flag("use_sliding_window"), config.optional_whole("sliding_window", default=4096)
    config.ignore("max_window_layers")
    fields = {**fields, "window": window if used else None}
    sparse = sparse_layers(config, sizes.layers)
    mixture = experts(config, hidden=768, count=128, top_k=8, renormalise=False)
    blocks: dict[str, Fields] = {"dense": {}, "experts": {"feedforward": mixture}}
    return stacked(fields, ["experts" if layer else "dense" for layer in sparse], blocks)


def sparse_layers(config: ConfigReader, layers: int) -> list[bool]:
    """Whether each layer has experts: every `decoder_sparse_step`-th, but for `mlp_only_layers`."""
    step, dense = config.whole("decoder_sparse_step", default=1), config.wholes("mlp_only_layers") or []
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


def experts(
    config: ConfigReader, *, hidden: int, count: int, top_k: int, renormalise: bool, **parameters: object
) -> Component:
    """The mixture of Qwen3-MoE and Qwen3-Next; the keywords before `parameters` are defaults."""
    return component(
        "moe",
        experts=config.whole("num_experts", "num_local_experts", default=count),
        top_k=config.whole("num_experts_per_tok", default=top_k),
        hidden=config.whole("moe_intermediate_size", default=hidden),
        renormalise=config.flag("norm_topk_prob", default=renormalise),
        **parameters,
    )
