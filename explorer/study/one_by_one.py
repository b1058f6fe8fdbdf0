"""Rows of a study counted one after the other; parts that they have in common are looked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import Combination, Combinations
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import DEFAULT_TOKENS
from explorer.cost.costs import Counted
from explorer.cost.counting import Workbench, count
from explorer.cost.parts.subject import longest
from explorer.errors import PluginError, RefusedError
from explorer.study.rows import counted_row, skipped_row
from explorer.study.warned import warned

OnProgress = Callable[[str, int, int], None]


@dataclass(eq=False)
class OneByOne:
    """The rows of a blueprint. counted: what a row costs and what it warns of, or why it is skipped."""

    combinations: Combinations
    found: list[tuple[Counted, list[str]] | str] = field(default_factory=list)

    @property
    def dead(self) -> NDArray[np.bool_]:
        """Whether each row is skipped, by a rule or because it cannot be built or run."""
        return np.array([isinstance(one, str) for one in self.found], np.bool_)

    def row(self, index: int) -> dict[str, Any]:
        """One row as in the JSON of a result, without its baseline."""
        row, found = self.combinations.rows[index], self.found[index]
        return skipped_row(row, found) if isinstance(found, str) else counted_row(row, *found)

    def counted(self, row: Combination, index: int) -> Counted:
        """What a row that lives costs."""
        found = self.found[index]
        assert not isinstance(found, str), found
        return found[0]


def count_one_by_one(
    blueprint: Blueprint, combinations: Combinations, tokens: int | None, bench: Workbench, on_progress: OnProgress
) -> OneByOne:
    """Count all rows of a blueprint.

    Raises: RefusedError or PluginError where no row is left: that of the first.
    """
    rows = list(combinations.rows)
    default = tokens or shortest_table([row.plan for row in rows if row.plan is not None])
    result, refusals = OneByOne(combinations), []
    for done, row in enumerate(rows):
        on_progress("counting", done, len(rows))
        if row.plan is None:
            result.found.append(row.skipped or "")
            continue
        try:
            with warned(row.plan) as said:
                counted = count(row.plan, blueprint.workloads, default, bench)
            result.found.append((counted, said))
        except (RefusedError, PluginError) as error:
            refusals.append(error)
            result.found.append(error.message if isinstance(error, RefusedError) else str(error))
    on_progress("counting", len(rows), len(rows))
    if refusals and result.dead.all():
        raise refusals[0]
    return result


def shortest_table(plans: Sequence[ModelPlan]) -> int:
    """Tokens of a workload that writes none: as many as every row can take, so that rows can be compared."""
    shortest = DEFAULT_TOKENS
    for plan in plans:
        with suppress(RefusedError, PluginError):  # it is refused again where its row is counted
            shortest = min([shortest, *longest(plan).values()])
    return shortest
