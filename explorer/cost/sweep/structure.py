"""Which layers of which blocks a model has, and what stands in a block at all: what all else depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from explorer.assembly.sites import CROSS
from explorer.blueprint.fields import DECODER
from explorer.blueprint.partial import presence, value
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.space import Space
from explorer.blueprint.state import Fields, State
from explorer.blueprint.varied import Varied
from explorer.registry.chosen import Chosen


@dataclass(frozen=True)
class Shape:
    """One block: its sublayers in order. shared_norm: None in the sequential layout."""

    name: str
    sublayers: tuple[str, ...]
    shared_norm: bool | None


@dataclass(frozen=True)
class Stacked:
    """One stack: its layers by the names of their blocks, and its blocks."""

    name: str
    layers: tuple[str, ...]
    written: bool
    blocks: tuple[Shape, ...]

    @property
    def used(self) -> list[tuple[Shape, int]]:
        """Blocks that count, and how many layers are of each: the unnamed one only where a layer is of it."""
        counted = [(block, self.layers.count(block.name)) for block in self.blocks]
        return [(block, times) for block, times in counted if times or block.name != UNNAMED]


@dataclass(frozen=True)
class Structure:
    """The stacks of a model; vocab: whether it has a vocabulary."""

    stacks: tuple[Stacked, ...]
    vocab: bool

    @property
    def whole(self) -> bool:
        """See `ModelPlan.whole`."""
        return self.vocab or any(stack.written for stack in self.stacks)

    def counted(self) -> list[tuple[tuple[str, str], int]]:
        """The blocks that costs are told of, by stack and name, and how many layers are of each."""
        return [((stack.name, block.name), times) for stack, block, times in self.blocks()]

    def blocks(self) -> Iterator[tuple[Stacked, Shape, int]]:
        """Blocks that costs are told of, and how many layers are of each."""
        for stack in self.stacks:
            for block, times in stack.used:
                if times or not self.whole:
                    yield stack, block, times


def structures(space: Space) -> Varied[Structure]:
    """The structure at each place that a plan can be made of; what it is elsewhere says nothing."""
    reads = {
        "layers": value,
        "layout": value,
        "vocab": presence,
        **dict.fromkeys(("attention", "cross_attention", "feedforward"), presence),
    }
    return space.map(_structure, reads)


def _structure(state: State) -> Structure:
    stacks = tuple(_stacked(state, stack) for stack in state.real_stacks)
    return Structure(stacks, state.model["vocab"].value is not None)


def _stacked(state: State, stack: str) -> Stacked:
    layers = state.stacks[stack]["layers"]
    names = layers.value if isinstance(layers.value, tuple) else ()
    blocks = tuple(_shape(stack, block, state.cells[stack, block]) for block in state.blocks)
    return Stacked(stack, names, layers.written, blocks)


def _shape(stack: str, name: str, fields: Fields) -> Shape:
    cross = fields["cross_attention"].value
    present = {
        "attention": _builds(fields["attention"].value),
        CROSS: stack == DECODER and _builds(fields["attention"].value if cross is None else cross),
        "feedforward": _builds(fields["feedforward"].value),
    }
    layout = fields["layout"].value
    shared = layout.given("shared_norm") if _is_parallel(layout) else None
    return Shape(name, tuple(sublayer for sublayer, there in present.items() if there), shared)


def _builds(chosen: Any) -> bool:
    return isinstance(chosen, Chosen) and not chosen.is_none


def _is_parallel(layout: Any) -> bool:
    return isinstance(layout, Chosen) and "shared_norm" in layout.component.schema.parameters
