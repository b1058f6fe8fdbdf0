"""Combinations that cannot be assembled, told from the plan alone, with the reason."""

from __future__ import annotations

from explorer.assembly.residual import PLACEMENTS, Residual
from explorer.blueprint.plan import BlockPlan
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


def refuse(block: BlockPlan, residual: Chosen) -> None:
    """Raises: RefusedError with the first reason that holds for a block."""
    reasons = (
        (placement_reason(block, residual), residual.where),
        (attention_reason(block), block.attention.where),
    )
    for reason, where in reasons:
        if reason is not None:
            raise RefusedError(reason, where)
