"""Latency of the blocks of every combination, measured side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from explorer.blueprint.combinations import Combination
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import STORED_BYTES, Workload
from explorer.latency.clock import Call

OnProgress = Callable[[str, int, int], None]


def measure_rows(
    rows: Sequence[dict[str, Any]],
    combinations: Sequence[Combination],
    *,
    device: str | None,
    effort: str,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Fill in ``latencies`` of the block costs of all rows, in place, and return what the measuring environment is.

    Blocks are measured, not whole models: a block is what the combinations differ in. A row whose measurement fails
    keeps its counts and gets the reason as ``error``.

    Raises: UsageError for a device or effort that there is not.
    """
    from explorer.latency.device import environment, resolve_device
    from explorer.latency.measure import Candidate, measure

    where = resolve_device(device)
    places = {
        f"{row['id']}/{index}": (row, cost, combination.plan)
        for row, combination in zip(rows, combinations, strict=True)
        for index, cost in enumerate(row["costs"])
        if cost["scope"] == "block" and combination.plan is not None and _runs(cost)
    }
    candidates = [
        Candidate(
            key, partial(_ready, plan, cost["name"], Workload(**cost["workload"]), where), _least_bytes(plan, cost)
        )
        for key, (_, cost, plan) in places.items()
    ]
    outcomes = measure(candidates, device=where, effort=effort, on_progress=lambda p: on_progress(*_shown(p)))
    for key, outcome in outcomes.items():
        _note(*places[key][:2], outcome.to_dict())
    return {"measured_on": environment(where)}


def _runs(cost: dict[str, Any]) -> bool:
    """An encoder whose output is cached does not run: there is nothing to time."""
    return not (_in_encoder(cost["name"]) and Workload(**cost["workload"]).source_is_cached)


def _in_encoder(label: str) -> bool:
    return label.startswith("encoder.")


def _least_bytes(plan: ModelPlan, cost: dict[str, Any]) -> int:
    """What a block needs at least: weights, cache, its input and its output."""
    workload = cost["workload"]
    stream = 2 * workload["batch"] * workload["tokens"] * plan.dim * STORED_BYTES[workload["dtype"]]
    return int(cost["weight_bytes"] + (cost["kv_cache_bytes"] or 0) + stream)


def _note(row: dict[str, Any], cost: dict[str, Any], entry: dict[str, Any]) -> None:
    cost["latencies"] = [entry]
    cost["latency"] = entry
    if entry["median_ms"] is None and not row["error"]:
        row["error"] = f"{cost['name']}: {entry['reason']}"


def _ready(plan: ModelPlan, name: str, workload: Workload, device: str) -> Call:
    from explorer.assembly.build import build_block
    from explorer.latency.runner import Feed, runnable

    encoder = _in_encoder(name)
    feed = Feed(dim=plan.dim, source=workload.source is not None and not encoder)
    workload = workload.of_source() if encoder else workload
    return runnable(lambda d, dtype: build_block(plan, name, device=d, dtype=dtype), workload, feed, device=device)


def _shown(progress: Any) -> tuple[str, int, int]:
    return progress.stage, progress.done, progress.total
