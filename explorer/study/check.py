"""Check that the rows of a blueprint can be built, without counting anything."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.assembly.build import build_block, build_model
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import DEFAULT_LIMIT
from explorer.blueprint.plan import ModelPlan
from explorer.cost.counting import settle
from explorer.cost.parts.subject import blocks_of
from explorer.errors import ExplorerError, PluginError, RefusedError


@dataclass(frozen=True)
class Checked:
    """How many combinations there are, and what became of them: product = rows + skipped + merged."""

    product: int
    rows: int
    skipped: int
    merged: int


def check(blueprint: Blueprint, limit: int = DEFAULT_LIMIT) -> Checked:
    """Build every row on meta, and see whether the workloads can run on it.

    Raises: UsageError above the limit, BlueprintError or RefusedError where no row can be built.
    """
    combinations = blueprint.combinations(limit)
    refusals = [refusal for row in combinations.rows if row.plan and (refusal := _refusal(row.plan, blueprint))]
    skipped = len(refusals) + sum(row.skipped is not None for row in combinations.rows)
    if skipped == len(combinations.rows):
        raise refusals[0]
    return Checked(combinations.product, len(combinations.rows) - skipped, skipped, combinations.merged)


def _refusal(plan: ModelPlan, blueprint: Blueprint) -> ExplorerError | None:
    try:
        if plan.whole:
            build_model(plan)
        for part in blocks_of(plan):
            build_block(plan, part.label)
        settle(plan, blueprint.workloads)
    except (RefusedError, PluginError) as error:
        return error
    return None
