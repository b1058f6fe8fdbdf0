"""Combinations that cannot be assembled, told from the plan alone, with the reason."""

from __future__ import annotations

from explorer.assembly.position import Position
from explorer.assembly.positions import idle_position
from explorer.assembly.residual import Residual
from explorer.blueprint.fields import PLACEMENTS
from explorer.blueprint.plan import BlockPlan, StackPlan
from explorer.errors import RefusedError
from explorer.registry.chosen import Chosen


def placement_reason(block: BlockPlan, residual: Chosen) -> str | None:
    """Why this residual cannot take the block's norm placement, or None."""
    constructor = residual.component.constructor
    # A constructor may be a function: what its class declares is then seen when it is built.
    if not isinstance(constructor, type) or not issubclass(constructor, Residual):
        return None
    return undefined_placement(residual, constructor, block.placement)


def undefined_placement(residual: Chosen, built: type[Residual], placement: str) -> str | None:
    """Why a residual class cannot take a placement, or None."""
    if placement in built.placements:
        return None
    defined = ", ".join(name for name in PLACEMENTS if name in built.placements)
    return f"residual '{residual.short()}' is defined for placement {defined}, not {placement}"


def attention_reason(block: BlockPlan) -> str | None:
    """Why the block's attention cannot do what the block asks (window, causal: false), or None."""
    attention = block.attention
    if attention.is_none:
        return None
    if block.window is not None and "window" not in attention.picks:
        return f"attention '{attention.short()}' takes no window, but the block has window {block.window}"
    if not block.causal and "causal" not in attention.picks:
        return f"attention '{attention.short()}' is always causal, but the block has causal: false"
    return None


def position_reason(block: BlockPlan, stack: StackPlan) -> str | None:
    """Why the block's position would do nothing in this stack, or None."""
    constructor = block.position.component.constructor
    # What a function makes is seen when an attention asks for it.
    if not isinstance(constructor, type) or not issubclass(constructor, Position):
        return None
    return idle_position(block.position, constructor, stack.base.position)


def refuse(block: BlockPlan, stack: StackPlan) -> None:
    """Raises: RefusedError with the first reason that holds for a block of a stack."""
    reasons = (
        (placement_reason(block, stack.residual), stack.residual.where),
        (attention_reason(block), block.attention.where),
        (position_reason(block, stack), block.position.where),
    )
    for reason, where in reasons:
        if reason is not None:
            raise RefusedError(reason, where)
