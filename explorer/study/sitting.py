"""Comparisons measured one after the other in the same surroundings, each noted with its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.latency.crew import measure_job
from explorer.latency.job import job_for
from explorer.latency.protocol import Progress
from explorer.latency.recipe import Recipe
from explorer.latency.store import Store
from explorer.prediction.hardware_table import HardwareTable
from explorer.study.comparisons import Comparison, Cost, Row
from explorer.study.measured import Entry, Measured, untimed
from explorer.study.parts import Parts, Summed
from explorer.study.possible import possible

OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Sitting:
    """What all comparisons of a run share. modules: plugins that workers load. table: of peaks that none can exceed."""

    device: str | None
    effort: str
    impls: tuple[str, ...]
    cache: str
    store: Store | None
    modules: tuple[str, ...]
    table: HardwareTable
    on_progress: OnProgress

    def fill(self, comparison: Comparison) -> dict[str, Any]:
        """Measure one comparison, note the entries with its rows, and return all that they follow from."""
        measured, job = self._measure(comparison, comparison.recipes)
        for row, cost in comparison.places:
            found = possible(measured.entries(row["id"]), cost, self.table)
            note(row, cost, found, _lost(found, measured.reason(row["id"])))
        about = {"block": comparison.block, "workload": comparison.workload.to_dict(), "job": job}
        return about | measured.to_dict()

    def fill_parts(self, parts: Parts) -> dict[str, Any]:
        """Measure the pieces of a comparison and some whole blocks; note the sums, and beside them what is whole."""
        comparison, whole = parts.comparison, parts.checked
        measured, job = self._measure(whole, parts.recipes)
        summed = Summed(parts, measured)
        checked = {row["id"] for row, _ in whole.places}
        for row, cost in comparison.places:
            sums = possible(summed.entries(row["id"]), cost, self.table)
            lost, wholes = _lost(sums), []
            if row["id"] in checked:
                wholes = possible(measured.entries(row["id"]), cost, self.table)
                lost += [f"as a whole: {reason}" for reason in _lost(wholes, measured.reason(row["id"]))]
            note(row, cost, [*sums, *wholes], lost)
        about = {"block": comparison.block, "workload": comparison.workload.to_dict(), "job": job}
        return about | {"parts": summed.to_dict()} | measured.to_dict()

    def _measure(self, comparison: Comparison, recipes: Sequence[Recipe]) -> tuple[Measured, str]:
        """What was found, and the name of the job under which it is stored."""
        job = job_for(
            recipes,
            device=self.device,
            effort=self.effort,
            impls=self.impls,
            cache=self.cache,
            modules=self.modules,
        )

        def told(progress: Progress) -> None:
            self.on_progress(f"{comparison.block}: {progress.stage}", progress.done, progress.total)

        found = list(measure_job(job, store=self.store, on_progress=told))
        return Measured(found, comparison.baselines), job.digest


def _lost(entries: Sequence[Entry], reason: str | None = None) -> list[str]:
    """What failed: the candidate, for this reason, or else each implementation that has no times in any regime."""
    if reason is not None:
        return [reason]
    timed = {entry["impl"] for entry in entries if entry["median_ms"] is not None}
    lost: dict[str | None, str] = {}
    for entry in entries:
        if entry["impl"] not in timed:
            lost.setdefault(entry["impl"], entry["reason"])
    return [f"{impl}: {why}" if impl and timed else why for impl, why in lost.items()]


def note(row: Row, cost: Cost, entries: Sequence[Entry], lost: Sequence[str]) -> None:
    """Put entries to a cost, and to its row what failed, even where something else has times."""
    found = entries or [untimed("; ".join(lost) or "it was not measured")]
    cost["latencies"], cost["latency"] = found, found[0]
    for text in (f"{cost['name']}: {reason}" for reason in lost):
        if text not in (row["error"] or ""):
            row["error"] = f"{row['error']}; {text}" if row["error"] else text
