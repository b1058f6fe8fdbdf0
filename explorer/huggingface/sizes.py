"""The sizes that every model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from explorer.huggingface.components import Component, Fields, component
from explorer.huggingface.reader import ConfigReader

MOST_LAYERS = 100_000


@dataclass(frozen=True)
class Names:
    """What a family calls its sizes; the first name of each is that of its own config class."""

    dim: tuple[str, ...] = ("hidden_size",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)


GPT_NAMES = Names(
    dim=("n_embd", "hidden_size"), layers=("n_layer", "num_hidden_layers"), heads=("n_head", "num_attention_heads")
)


@dataclass(frozen=True)
class Sizes:
    """kv_heads: as many as heads, or fewer, which share."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    def fields(self) -> Fields:
        """`layers` aside."""
        head_dim = None if self.head_dim * self.heads == self.dim else self.head_dim
        return {"dim": self.dim, "heads": self.heads, "head_dim": head_dim, "vocab": self.vocab}

    def attention(self, **parameters: Any) -> Component:
        if self.kv_heads == self.heads:
            return component("mha", **parameters)
        return component("gqa", kv_heads=self.kv_heads, **parameters)


def read_sizes(
    config: ConfigReader,
    *,
    dim: int,
    layers: int,
    heads: int,
    vocab: int,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    names: Names | None = None,
) -> Sizes:
    """The sizes of a decoder or an encoder. The keywords are defaults; kv_heads None: as heads, head_dim None: dim /
    heads, rounded down.
    """
    called = names or Names()
    width = config.whole(*called.dim, default=dim)
    count = config.whole(*called.heads, default=heads)
    found = Sizes(
        dim=width,
        layers=config.whole(*called.layers, default=layers, most=MOST_LAYERS),
        heads=count,
        kv_heads=config.optional_whole(*called.kv_heads, default=kv_heads) or count,
        head_dim=config.optional_whole(*called.head_dim, default=head_dim) or max(1, width // count),
        vocab=config.whole("vocab_size", default=vocab),
    )
    if found.heads % found.kv_heads:
        config.problem(
            (called.kv_heads or called.heads)[0], f"heads {found.heads} must divide by kv_heads {found.kv_heads}"
        )
    return found
