"""The values of all fields in every stack and block.

Every (stack, block) pair has its own full set of block fields, also of the stacks and blocks that a blueprint may turn
out not to have. So a wide change is one assignment everywhere, and the last mapping to write a field wins.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from explorer.blueprint.fields import (
    BLOCK,
    DECODER,
    ENCODER,
    FIELDS,
    MISSING,
    MODEL,
    READ_BY_STACK,
    STACK,
    STACKS,
    at_level,
)
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, Reader, plain_value
from explorer.blueprint.tree import node_of
from explorer.errors import NOWHERE, Where, did_you_mean
from explorer.registry.chosen import Chosen


@dataclass(frozen=True)
class Setting:
    """A field's value and where it was written (NOWHERE: a default)."""

    value: Any
    where: Where = field(default=NOWHERE, compare=False)
    written: bool = False

    @cached_property
    def text(self) -> str:
        """Equal for equal values, whatever the order in which parameters were written."""
        return json.dumps(plain_value(self.value), sort_keys=True, default=repr)

    @cached_property
    def lacks(self) -> bool:
        """Whether a required parameter is not written, or the default that is in force is not installed."""
        if isinstance(self.value, Chosen):
            return _lacks(self.value)
        return self.value is BAD and not self.written


def _lacks(chosen: Chosen) -> bool:
    return bool(chosen.missing()) or any(_lacks(inner) for _, inner in chosen.nested())


Fields = Mapping[str, Setting]
Cell = tuple[str, str]  # stack, block


@dataclass(frozen=True)
class State:
    """All fields; ``split`` holds the stacks that are written as mappings (either makes an encoder-decoder)."""

    model: Fields
    stacks: Mapping[str, Fields]
    cells: Mapping[Cell, Fields]
    split: frozenset[str] = frozenset()

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """Names of blocks in order of definition, the unnamed one first."""
        first = next(iter(self.stacks))
        return tuple(block for stack, block in self.cells if stack == first)

    @property
    def real_stacks(self) -> tuple[str, ...]:
        return (ENCODER, DECODER) if self.split else ("",)

    def pruned(self) -> State:
        """The state without the stacks that the model does not have; changes can no longer make it have them."""
        real = self.real_stacks
        stacks = {stack: fields for stack, fields in self.stacks.items() if stack in real}
        return replace(self, stacks=stacks, cells={c: fields for c, fields in self.cells.items() if c[0] in real})

    def no_block(self, name: str) -> list[str | None]:
        """Hints for a block that is not defined."""
        return [did_you_mean(name, self.blocks[1:]), f"blocks: {', '.join(self.blocks[1:]) or 'none are defined'}"]

    def in_use(self, stack: str, block: str) -> bool:
        """Whether a block counts: named ones always, the unnamed one where a layer is of it."""
        layers = self.stacks[stack]["layers"].value
        return stack in self.real_stacks and (block != UNNAMED or layers is BAD or UNNAMED in layers)

    def reads(self, stack: str, block: str, name: str) -> bool:
        """Whether the model depends on this field of this block: the block is in use, or its stack takes the field."""
        return self.in_use(stack, block) or (stack in self.real_stacks and name in READ_BY_STACK)


def default_state(reader: Reader) -> State:
    """The state before any file."""

    def fields(level: str, stack: str = "") -> dict[str, Setting]:
        return {f.name: Setting(_default(f.name, stack, reader)) for f in at_level(level)}

    return State(
        model=fields(MODEL),
        stacks={stack: fields(STACK, stack) for stack in STACKS},
        cells={(stack, UNNAMED): fields(BLOCK, stack) for stack in STACKS},
    )


def _default(name: str, stack: str, reader: Reader) -> Any:
    this = FIELDS[name]
    if this.default is MISSING:
        return MISSING
    if name == "causal" and stack == ENCODER:
        return False
    if name == "layers":
        return (UNNAMED,)
    # A default that is not installed is only missed where the blueprint leaves it in force: `resolve` says so.
    return reader.afresh().value(this.shape, node_of(this.default), name)
