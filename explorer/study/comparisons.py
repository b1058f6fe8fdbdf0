"""Which blocks of a study are timed in the same rounds: those of one name, on one workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from explorer.blueprint.workload import STORED_BYTES, Workload
from explorer.latency.recipe import Recipe

Row = dict[str, Any]
Cost = dict[str, Any]

_ENCODER = "encoder."


@dataclass(frozen=True)
class Comparison:
    """A block on a workload, in several rows of a study; a row's id is the key of its candidate."""

    block: str
    workload: Workload
    places: tuple[tuple[Row, Cost], ...]

    @cached_property
    def recipes(self) -> tuple[Recipe, ...]:
        """What is measured: a candidate for each row, and each baseline once more."""
        rows = [_recipe(row, cost, self.baselines[row["id"]]) for row, cost in self.places]
        bases = set(self.baselines.values())
        return (*rows, *(recipe.clone() for recipe in rows if recipe.key in bases))

    @cached_property
    def baselines(self) -> Mapping[str, str | None]:
        """For each row the one that it is compared with, None for a baseline and for what has none here."""
        here = {row["id"] for row, _ in self.places}
        found = {row["id"]: row["baseline_id"] for row, _ in self.places}
        return {key: base if base in here and base != key else None for key, base in found.items()}


def comparisons(rows: Iterable[Row]) -> list[Comparison]:
    """The blocks of the rows that can run, by workload and name, in order of appearance."""
    found: dict[tuple[Workload, str], list[tuple[Row, Cost]]] = {}
    for row in rows:
        for cost in row["costs"]:
            workload = Workload(**cost["workload"])
            if cost["scope"] == "block" and runs(cost["name"], workload):
                found.setdefault((workload, cost["name"]), []).append((row, cost))
    return [Comparison(block, workload, tuple(places)) for (workload, block), places in found.items()]


def runs(block: str, workload: Workload) -> bool:
    """Whether there is anything to time: an encoder whose output is cached does not run."""
    return not (block.startswith(_ENCODER) and workload.source_is_cached)


def _recipe(row: Row, cost: Cost, baseline: str | None) -> Recipe:
    return Recipe(
        key=row["id"],
        document=row["resolved"],
        block=cost["name"],
        workload=cost["workload"],
        baseline=baseline,
        least_bytes=_least_bytes(row, cost),
        touched_bytes=_touched_bytes(cost),
    )


def _least_bytes(row: Row, cost: Cost) -> int:
    """What a block needs at least: weights, cache, its input and its output."""
    workload = cost["workload"]
    dim = row["resolved"].get("dim", 0)
    stream = 2 * workload["batch"] * workload["tokens"] * dim * STORED_BYTES[workload["dtype"]]
    return int(cost["weight_bytes"] + (cost["kv_cache_bytes"] or 0) + stream)


def _touched_bytes(cost: Cost) -> int | None:
    """Of weights and cache what one pass reads: of experts those that tokens go to."""
    kinds = cost["breakdown"]
    if kinds is None or cost["kv_cache_bytes"] is None:
        return None
    read = sum(kind["moved_weights"] for kind in kinds.values())
    return min(read, int(cost["weight_bytes"])) + int(cost["kv_cache_bytes"])
