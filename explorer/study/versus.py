"""One block against another: two blueprints, one verdict for each workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.workload import Workload
from explorer.errors import UsageError, did_you_mean
from explorer.study.comparing import compare, join
from explorer.study.comparisons import Comparison, Cost, Row, runs
from explorer.study.measuring import Measuring, measured_on
from explorer.study.result import Result
from explorer.study.sitting import OnProgress


def versus(
    one: Blueprint, other: Blueprint, measuring: Measuring, on_progress: OnProgress, block: str | None = None
) -> Result:
    """The result of both, with the latencies of a block of each: `other` is timed against `one`.

    block: its name, where a blueprint has several. Raises: UsageError for a blueprint that explores axes, for a block
    that there is not or that does not run, and as `Measuring.check`.
    """
    measuring.check()
    for blueprint in (one, other):
        if blueprint.axes:
            paths = ", ".join(axis.name for axis in blueprint.axes)
            raise UsageError(
                f"{blueprint.name} explores {paths}: latency takes two single designs; use `run --measure`"
            )
    result = join(list(compare((one, other), on_progress)))
    rows = list(result.rows)
    for row in rows:
        if row["skipped"] is not None:
            raise UsageError(f"{row['label']} cannot be built: {row['skipped']}")
    _same_workloads(rows)
    _known_block(rows, block)
    sitting = measuring.sitting(one.registry, other.registry, on_progress=on_progress)
    comparisons = [_comparison(rows, costs) for costs in _pairs(rows, block)]
    result.head["measurements"] = [sitting.fill(each) for each in comparisons]
    result.head["environment"] |= measured_on(measuring.device)
    return result


def _pairs(rows: Sequence[Row], block: str | None) -> list[tuple[Cost, ...]]:
    """For each workload the costs of the block of each row, where those run."""
    every = list(zip(*(_costs(row, block) for row in rows), strict=True))
    found = [costs for costs in every if all(runs(cost["name"], Workload(**cost["workload"])) for cost in costs)]
    if not found:
        name = " and ".join(dict.fromkeys(cost["name"] for cost in every[0]))
        raise UsageError(f"{name} does not run on these workloads: what it made stands in a cache; take phase=prefill")
    return found


def _comparison(rows: Sequence[Row], costs: Sequence[Cost]) -> Comparison:
    names = dict.fromkeys(cost["name"] for cost in costs)
    return Comparison(" and ".join(names), Workload(**costs[0]["workload"]), tuple(zip(rows, costs, strict=True)))


def _same_workloads(rows: Sequence[Row]) -> None:
    one, other = (list(dict.fromkeys(Workload(**cost["workload"]) for cost in row["costs"])) for row in rows)
    sourced = [any(workload.source is not None for workload in workloads) for workloads in (one, other)]
    if sourced[0] != sourced[1]:
        encoder, single = (rows[sourced.index(has)]["label"] for has in (True, False))
        raise UsageError(
            f"{encoder} has an encoder and {single} has none: no workload is the same for both, so their blocks are "
            "not timed against each other; `explorer compare` sets their costs side by side"
        )
    if one != other:
        texts = [", then ".join(workload.label for workload in workloads) for workloads in (one, other)]
        raise UsageError(
            f"the two are not run on the same: {rows[0]['label']}: {texts[0]}; {rows[1]['label']}: {texts[1]}; "
            "write --workload, which holds for both"
        )


def _known_block(rows: Sequence[Row], block: str | None) -> None:
    names = dict.fromkeys(entry["name"] for row in rows for entry in row["params"]["blocks"])
    if block is not None and block not in names:
        hint = did_you_mean(block, names)
        known = ", ".join(names)
        raise UsageError(f"neither has a block {block!r}; there are: {known}{f'; {hint}' if hint else ''}")


def _costs(row: Row, block: str | None) -> list[Cost]:
    """The costs of one block of a row, by workload."""
    names = [entry["name"] for entry in row["params"]["blocks"]]
    if block is None and len(names) > 1:
        raise UsageError(f"{row['label']} has several blocks; name one with --block: {', '.join(names)}")
    name = names[0] if block is None or len(names) == 1 else block
    if name not in names:
        hint = did_you_mean(name, names)
        raise UsageError(
            f"{row['label']} has no block {name!r}; it has: {', '.join(names)}{f'; {hint}' if hint else ''}"
        )
    found: list[dict[str, Any]] = [cost for cost in row["costs"] if (cost["scope"], cost["name"]) == ("block", name)]
    return found
