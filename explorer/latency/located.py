"""Where in a plan a block stands that reports name by a label."""

from __future__ import annotations

from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan


def located(plan: ModelPlan, label: str) -> tuple[StackPlan, BlockPlan]:
    """The stack and the block of a label (`block`, `encoder.block`, a name of `blocks`), which the plan must have."""
    blocks = [(stack, block) for stack in plan.stacks for block in stack.blocks.values()]
    return next((stack, block) for stack, block in blocks if stack.label(block.name) == label)
