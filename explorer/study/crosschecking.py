"""What other counters print for the blocks of each row, held against what was reported of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.blueprint.plan import ModelPlan
from explorer.cost.costs import Counted
from explorer.cost.crosscheck.check import crosscheck
from explorer.cost.parts.workshop import warnings_told
from explorer.errors import UsageError
from explorer.registry.registry import CostRule

MOST_ROWS = 200
"""Each row takes seconds: every tool builds and runs its blocks."""


def refuse_many(rows: int) -> None:
    """Raises: UsageError where other tools would run for hours."""
    if rows > MOST_ROWS:
        raise UsageError(
            f"a cross-check takes seconds for each row, and these are {rows:,}; it takes {MOST_ROWS} at most: give an "
            "axis fewer values (--axis PATH=A,B) or write one (--axis PATH=A)"
        )


def crosschecked(plan: ModelPlan, counted: Counted, rules: Mapping[str, CostRule]) -> list[dict[str, Any]]:
    """For each workload and block of a row the entry of its cross-check, as in the JSON of a result."""
    params = {block.name: block.params for block in counted.params.blocks}
    with warnings_told():  # the row has told them
        return [
            crosscheck(
                plan,
                cost.name,
                cost.workload,
                matmul_flops=cost.matmul_flops,
                exact=cost.matmul_flops_exact,
                params=params[cost.name],
                rules=rules,
            ).to_dict()
            for cost in counted.costs
            if cost.scope == "block"
        ]
