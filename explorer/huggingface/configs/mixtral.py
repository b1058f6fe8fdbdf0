"""Mixtral: Mistral with a mixture of experts."""

from __future__ import annotations

from explorer.huggingface.components import Fields, component
from explorer.huggingface.configs.llama import decoder, rmsnorm
from explorer.huggingface.reader import ConfigReader
from explorer.huggingface.rope import Names
from explorer.huggingface.sizes import read_sizes


def mixtral(config: ConfigReader) -> Fields:
    sizes = read_sizes(config, vocab=32000, dim=4096, layers=32, heads=32, kv_heads=8)
    config.only("router_jitter_noise", 0)
    fields = decoder(config, sizes, rmsnorm(config, 1e-5), hidden=14336, rope=Names(theta=1_000_000.0), longest=131072)
    experts = component(
        "moe",
        experts=config.whole("num_local_experts", "num_experts", default=8),
        top_k=config.whole("num_experts_per_tok", default=2),
        hidden=config.whole("intermediate_size", default=14336),
    )
    window = config.optional_whole("sliding_window")
    return {**fields, "feedforward": experts, "window": window, "layers": sizes.layers}
