"""Check that the rows of a blueprint can be built, without counting anything."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.assembly.build import build_block
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import DEFAULT_LIMIT
from explorer.blueprint.plan import ModelPlan
from explorer.errors import RefusedError


@dataclass(frozen=True)
class Checked:
    """How many combinations there are, and what became of them: product = rows + skipped + merged."""

    product: int
    rows: int
    skipped: int
    merged: int


def check(blueprint: Blueprint, limit: int = DEFAULT_LIMIT) -> Checked:
    """Build every block of every row on meta.

    Raises: UsageError above the limit, BlueprintError or RefusedError where no row can be built.
    """
    combinations = blueprint.combinations(limit)
    refusals = [refusal for row in combinations.rows if row.plan and (refusal := _refusal(row.plan))]
    skipped = len(refusals) + sum(row.skipped is not None for row in combinations.rows)
    if skipped == len(combinations.rows):
        raise refusals[0]
    return Checked(combinations.product, len(combinations.rows) - skipped, skipped, combinations.merged)


def _refusal(plan: ModelPlan) -> RefusedError | None:
    try:
        for stack in plan.stacks:
            for name in stack.counts:
                build_block(plan, stack.label(name))
    except RefusedError as error:
        return error
    return None
