"""The positions of a stack: equal ones are one instance, however many attentions ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from explorer.assembly.position import Position
from explorer.blueprint.plan import BlockPlan
from explorer.errors import PluginError, RefusedError
from explorer.registry.chosen import Chosen, Make


@dataclass
class Positions:
    """Hands out positions while a stack is built: one for equal component, parameters and picked menu values.

    base: the stack's own, the one that is added to embeddings; None: whichever is asked for. make: see `Make`, which is
    told the stack, whose own they are.
    """

    dim: int
    base: Chosen | None = None
    make: Make = Chosen.build
    stack: str = ""
    _made: list[tuple[Chosen, Mapping[str, Any], Position]] = field(default_factory=list)

    def maker(self, block: BlockPlan) -> PositionMaker:
        """What an attention of this block gets: `position(head_dim)`."""
        return PositionMaker(self, block)

    def get(self, block: BlockPlan, head_dim: int) -> Position:
        """The position of a block for heads of this width.

        Raises: RefusedError where it would do nothing; see `idle_position`.
        """
        chosen = block.position
        menu = {"dim": self.dim, "heads": block.heads, "head_dim": head_dim, "causal": block.causal}
        picked = {name: menu[name] for name in chosen.picks}
        for other, values, position in self._made:
            if other == chosen and values == picked:
                return position
        position = self.make(chosen, {**menu, "stack": self.stack})
        if not isinstance(position, Position):
            component = chosen.component
            raise PluginError(
                f"position '{component.name}' of {component.origin} must build an explorer.Position, "
                f"not {type(position).__name__}"
            )
        reason = None if self.base is None else idle_position(chosen, type(position), self.base)
        if reason is not None:
            raise RefusedError(reason, chosen.where)
        self._made.append((chosen, picked, position))
        return position

    def embedding(self, block: BlockPlan) -> Position | None:
        """The block's position where it adds something to embeddings."""
        constructor = block.position.component.constructor
        # Seen from the class: a rotation must not refuse a head width that no attention asks for.
        if isinstance(constructor, type) and issubclass(constructor, Position) and not embeds(constructor):
            return None
        position = self.get(block, block.head_dim)
        return position if embeds(type(position)) else None

    def module(self, base: Position | None) -> nn.ModuleList:
        """Those that do something here, to be owned by the stack: `embed` counts for `base`, the stack's own, only."""
        return nn.ModuleList(p for _, _, p in self._made if p is base or acts_in_attention(type(p)))


@dataclass(frozen=True)
class PositionMaker:
    """Makes the positions of one block for the head widths its attention asks for. given: those it made."""

    positions: Positions
    block: BlockPlan
    given: list[Position] = field(default_factory=list, compare=False)

    def __call__(self, head_dim: int) -> Position:
        position = self.positions.get(self.block, head_dim)
        self.given.append(position)
        return position


def no_position(head_dim: int) -> Position:
    """What cross-attention gets: queries and keys stand in different sequences."""
    return _NO_POSITION


# One for all: with an instance of its own no layer with cross-attention would compare equal to another.
_NO_POSITION = Position()


def idle_position(chosen: Chosen, built: type[Position], base: Chosen) -> str | None:
    """Why a block's position of this class does nothing in a stack whose own is `base`, or None."""
    if chosen == base or not embeds(built) or acts_in_attention(built):
        return None
    own = f"only the stack's own position, '{base.short()}', is added to embeddings"
    return f"position '{chosen.short()}' of a block does nothing in attention, and {own}"


def acts_in_attention(position: type[Position]) -> bool:
    return position.rotate is not Position.rotate or position.bias is not Position.bias


def embeds(position: type[Position]) -> bool:
    return position.embed is not Position.embed
