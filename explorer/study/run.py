"""Run a blueprint: count every combination, measure where asked, and put it all in one document."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from explorer.blueprint.axes import plain_axes
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import DEFAULT_LIMIT, Combination, Combinations
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import DEFAULT_TOKENS
from explorer.cost.counting import count
from explorer.cost.subject import longest
from explorer.errors import PluginError, RefusedError
from explorer.latency.device import resolve_device
from explorer.latency.effort import effort_for
from explorer.study.measuring import measure_rows
from explorer.study.result import Result
from explorer.study.rows import counted_row, skipped_row
from explorer.study.warned import warned

OnProgress = Callable[[str, int, int], None]


def run(
    blueprint: Blueprint | str | Path | Mapping[str, Any],
    *,
    measure: bool = False,
    effort: str = "default",
    device: str | None = None,
    limit: int = DEFAULT_LIMIT,
    default_tokens: int | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Parameters, matrix products and cache of every combination, and its latency where ``measure`` is set.

    blueprint: loaded, or what ``load`` takes. device: where to measure; None: CUDA where there is one, else the CPU.
    limit: most combinations. default_tokens: of a workload that writes none; None: as many as every row can take.
    on_progress: called with what is being done, how many of it are, and of how many.

    Raises: UsageError (limit, device), BlueprintError or RefusedError where no combination is left.
    """
    progress = on_progress or (lambda stage, done, total: None)
    # What is wrong with the options is told before the work, and without measuring too.
    effort_for(effort)
    if device is not None:
        resolve_device(device)
    if not isinstance(blueprint, Blueprint):
        blueprint = load(blueprint)
    combinations = blueprint.combinations(limit)
    rows = _count_all(blueprint, combinations, default_tokens, progress)
    _mark_baselines(rows, combinations)
    environment = _environment(blueprint)
    if measure:
        environment |= measure_rows(rows, combinations.rows, device=device, effort=effort, on_progress=progress)
    return Result(_document(blueprint, combinations, rows, environment))


def _count_all(
    blueprint: Blueprint, combinations: Combinations, tokens: int | None, progress: OnProgress
) -> list[dict[str, Any]]:
    default = tokens or shortest_table([row.plan for row in combinations.rows if row.plan is not None])
    rows, refusals = [], []
    for done, row in enumerate(combinations.rows):
        progress("counting", done, len(combinations.rows))
        try:
            rows.append(_count_one(blueprint, row, default))
        except (RefusedError, PluginError) as error:
            refusals.append(error)
            rows.append(skipped_row(row, error.message if isinstance(error, RefusedError) else str(error)))
    progress("counting", len(rows), len(rows))
    if refusals and all(row["skipped"] for row in rows):
        raise refusals[0]
    return rows


def _count_one(blueprint: Blueprint, row: Combination, default: int) -> dict[str, Any]:
    if row.plan is None:
        return skipped_row(row, row.skipped or "")
    with warned(row.plan) as said:
        counted = count(row.plan, blueprint.workloads, default)
    return counted_row(row, counted, said)


def shortest_table(plans: Sequence[ModelPlan]) -> int:
    """Tokens of a workload that writes none: as many as every row can take, so that rows can be compared."""
    shortest = DEFAULT_TOKENS
    for plan in plans:
        with suppress(RefusedError, PluginError):  # it is refused again where its row is counted
            shortest = min([shortest, *longest(plan).values()])
    return shortest


def _mark_baselines(rows: Sequence[dict[str, Any]], combinations: Combinations) -> None:
    partners = combinations.baselines({row["id"] for row in rows if row["skipped"]})
    for row in rows:
        row["baseline_id"] = partners[row["id"]]
        row["baseline"] = row["baseline_id"] == row["id"]


def _document(
    blueprint: Blueprint, combinations: Combinations, rows: list[dict[str, Any]], environment: dict[str, Any]
) -> dict[str, Any]:
    skipped = sum(1 for row in rows if row["skipped"])
    return {
        "schema": 1,
        "blueprint": {"name": blueprint.name, "path": blueprint.path, "digest": blueprint.digest},
        "environment": environment,
        "axes": plain_axes(blueprint.axes),
        "counts": {
            "product": combinations.product,
            "rows": len(rows) - skipped,
            "skipped": skipped,
            "merged": combinations.merged,
        },
        "combinations": rows,
    }


def _environment(blueprint: Blueprint) -> dict[str, Any]:
    import torch

    import explorer

    return {
        "explorer": explorer.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "plugins": {package.name: str(package.origin) for package in blueprint.registry.packages},
    }
