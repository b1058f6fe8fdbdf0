"""What a resolved blueprint asks for: plain frozen data from which a model is assembled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from explorer.registry.chosen import Chosen

UNNAMED = "block"  # the name of the block that `layers: 32` repeats


@dataclass(frozen=True)
class Dropout:
    """Dropout rates at the four places of a Transformer."""

    embedding: float = 0.0
    attention: float = 0.0
    activation: float = 0.0
    sublayer: float = 0.0


@dataclass(frozen=True)
class BlockPlan:
    """One block. ``shared_norm`` is None in the sequential layout."""

    name: str
    heads: int
    head_dim: int
    norm: Chosen
    placement: str
    shared_norm: bool | None
    position: Chosen
    attention: Chosen
    cross_attention: Chosen | None
    feedforward: Chosen
    activation: Chosen
    bias: bool | str
    causal: bool
    window: int | None
    dropout: Dropout


def block_label(stack: str, block: str) -> str:
    """A block as reports name it: ``encoder.block``, or ``block`` in a single stack, which has no name."""
    return f"{stack}.{block}" if stack else block


@dataclass(frozen=True)
class StackPlan:
    """A stack of layers; ``name`` is "", "encoder" or "decoder", ``layers`` holds the block name of each layer."""

    name: str
    blocks: Mapping[str, BlockPlan]
    layers: tuple[str, ...]
    layers_written: bool
    residual: Chosen
    final_norm: Chosen | None

    @property
    def base(self) -> BlockPlan:
        """The unnamed block; its position is the one that is added to embeddings."""
        return self.blocks[UNNAMED]

    @cached_property
    def counts(self) -> dict[str, int]:
        """Layers per block name; blocks that no layer uses have 0, the unnamed one is left out then."""
        used = {name: self.layers.count(name) for name in self.blocks}
        return {name: n for name, n in used.items() if n or name != UNNAMED}

    def label(self, name: str) -> str:
        """``encoder.block``, or ``block`` in a single stack."""
        return block_label(self.name, name)


@dataclass(frozen=True)
class EmbeddingPlan:
    """The input table: ``scale`` multiplies it, ``norm`` follows it, ``types`` is the size of a token-type table."""

    scale: float | None
    norm: Chosen | None
    types: int


@dataclass(frozen=True)
class ModelPlan:
    """A model: one stack, or an encoder and a decoder. Without ``vocab`` it is the stacks alone."""

    dim: int
    vocab: int | None
    embedding: EmbeddingPlan
    head: Chosen
    tie_embeddings: bool
    stacks: tuple[StackPlan, ...]
    init: Chosen
    seed: int

    @property
    def stack(self) -> StackPlan:
        """The stack that makes the output."""
        return self.stacks[-1]

    @property
    def encoder(self) -> StackPlan | None:
        return self.stacks[0] if len(self.stacks) == 2 else None

    @property
    def whole(self) -> bool:
        """Whether the blueprint describes a model and not just a block: it writes `layers` or `vocab`."""
        return self.vocab is not None or any(stack.layers_written for stack in self.stacks)
