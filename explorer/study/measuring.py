"""Latency of the blocks of a study: which rows, side by side with what, into which entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from explorer.errors import UsageError, did_you_mean
from explorer.latency.crew import measure_job
from explorer.latency.device import environment, resolve_device
from explorer.latency.effort import effort_for
from explorer.latency.implementation import checked
from explorer.latency.job import job_for
from explorer.latency.protocol import Progress
from explorer.latency.recipe import Recipe
from explorer.latency.store import Store
from explorer.latency.temperature import MODES
from explorer.latency.words import known
from explorer.registry.registry import Registry
from explorer.study.auditing import spread
from explorer.study.comparisons import Comparison, Row, comparisons
from explorer.study.measured import Entry, Measured, untimed
from explorer.study.pareto import pareto
from explorer.study.parts import Parts, Summed

OnProgress = Callable[[str, int, int], None]

ALL, PARETO, PARTS = "all", "pareto", "parts"


@dataclass(frozen=True)
class Measuring:
    """How a study is measured.

    rows: `all`, `pareto` (those that no other row beats in everything that is counted), `parts` (each distinct part
    once, and a sample of whole blocks), or a number of rows, the baselines among them. device: None is an accelerator
    where there is one. impls: `eager`, `compile`. cache: see `temperature.MODES`. store: where records are kept.
    """

    rows: str = ALL
    effort: str = "default"
    device: str | None = None
    impls: tuple[str, ...] = ("eager",)
    cache: str = "auto"
    store: Store | None = None

    def check(self) -> None:
        """Raises UsageError for a word that there is not, before any work."""
        if not self.rows.isdecimal() and self.rows not in (ALL, PARETO, PARTS):
            guess = did_you_mean(self.rows, (ALL, PARETO, PARTS))
            words = f"measure takes {ALL}, {PARTS}, {PARETO} or a number of rows, not {self.rows!r}"
            raise UsageError(words + (f"; {guess}" if guess else ""))
        if self.rows.isdecimal() and int(self.rows) < 1:
            raise UsageError("measure takes at least 1 row")
        effort_for(self.effort)
        resolve_device(self.device)
        checked(self.impls)
        known("cache mode", self.cache, MODES)


def measure_rows(
    rows: Sequence[Row], measuring: Measuring, registry: Registry, on_progress: OnProgress
) -> dict[str, Any]:
    """Fill in ``latencies`` of the block costs of the chosen rows, in place; returns environment and raw times.

    Blocks are measured, not whole models: a block is what combinations differ in. A row whose measurement fails keeps
    its counts and gets the reason as ``error``. registry: its plugin modules are loaded in worker processes too.

    Raises: UsageError as `Measuring.check`; MeasureError where no process can be started.
    """
    chosen = chosen_rows([row for row in rows if row["skipped"] is None], measuring.rows)
    if measuring.rows == PARTS:
        raw = [_fill_parts(Parts(one, registry), measuring, on_progress) for one in comparisons(chosen)]
    else:
        raw = [fill(one, measuring, registry.modules, on_progress) for one in comparisons(chosen)]
    return {"environment": measured_on(resolve_device(measuring.device)), "measurements": raw}


def measured_on(device: str) -> dict[str, Any]:
    """What measurements depend on besides the blocks, as the document holds it."""
    return {"measured_on": environment(device)}


def fill(
    comparison: Comparison, measuring: Measuring, modules: Sequence[str], on_progress: OnProgress
) -> dict[str, Any]:
    """Measure one comparison, note the entries with its rows, and return all that they follow from."""
    measured = _measure(comparison, comparison.recipes, measuring, modules, on_progress)
    for row, cost in comparison.places:
        _note(row, cost, measured.entries(row["id"]), measured.reason(row["id"]))
    return {"block": comparison.block, "workload": comparison.workload.to_dict()} | measured.to_dict()


def _fill_parts(parts: Parts, measuring: Measuring, on_progress: OnProgress) -> dict[str, Any]:
    """Measure the pieces of a comparison and some whole blocks; note the sums, and beside them what is whole."""
    comparison, whole = parts.comparison, parts.checked
    measured = _measure(whole, parts.recipes, measuring, parts.registry.modules, on_progress)
    summed = Summed(parts, measured)
    checked = {row["id"] for row, _ in whole.places}
    for row, cost in comparison.places:
        sums = summed.entry(row["id"])
        missing = sums[0]["reason"] if sums[0]["median_ms"] is None else None
        _note(row, cost, [*sums, *(measured.entries(row["id"]) if row["id"] in checked else [])], missing)
    about = {"block": comparison.block, "workload": comparison.workload.to_dict(), "parts": summed.to_dict()}
    return about | measured.to_dict()


def chosen_rows(rows: Sequence[Row], which: str) -> list[Row]:
    """The rows that are measured, in the order of the study; baselines of chosen rows are chosen too."""
    if which == PARETO:
        chosen = {row["id"] for row in pareto(rows)}
    elif which.isdecimal():
        chosen = {rows[index]["id"] for index in spread(int(which), len(rows))}
    else:
        return list(rows)
    chosen |= {row["baseline_id"] for row in rows if row["id"] in chosen and row["baseline_id"]}
    return [row for row in rows if row["id"] in chosen]


def _measure(
    comparison: Comparison,
    recipes: Sequence[Recipe],
    measuring: Measuring,
    modules: Sequence[str],
    on_progress: OnProgress,
) -> Measured:
    job = job_for(
        recipes,
        baseline=comparison.control,
        device=measuring.device,
        effort=measuring.effort,
        impls=measuring.impls,
        cache=measuring.cache,
        modules=modules,
    )
    told = partial(_told, on_progress, comparison.block)
    found = list(measure_job(job, store=measuring.store, on_progress=told))
    return Measured(found, comparison.baselines, comparison.control)


def _note(row: Row, cost: dict[str, Any], entries: list[Entry], reason: str | None) -> None:
    cost["latencies"] = entries or [untimed(reason or "it was not measured")]
    cost["latency"] = cost["latencies"][0]
    if reason and not row["error"]:
        row["error"] = f"{cost['name']}: {reason}"


def _told(on_progress: OnProgress, block: str, progress: Progress) -> None:
    on_progress(f"{block}: {progress.stage}", progress.done, progress.total)
