"""Latency of the blocks of a study: which rows are measured, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from explorer.errors import MeasureError, UsageError, did_you_mean
from explorer.latency.device import environment, resolve_device
from explorer.latency.effort import effort_for
from explorer.latency.implementation import checked
from explorer.latency.store import Store
from explorer.latency.temperature import MODES
from explorer.latency.words import known
from explorer.prediction.hardware_table import hardware_table
from explorer.registry.registry import Registry
from explorer.study.auditing import spread
from explorer.study.comparisons import Row, comparisons
from explorer.study.measured import untimed
from explorer.study.pareto import pareto
from explorer.study.parts import Parts, unsummed
from explorer.study.sitting import OnProgress, Sitting, note

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

    def sitting(self, *registries: Registry, on_progress: OnProgress) -> Sitting:
        """The surroundings of its comparisons; the plugin modules of the registries are loaded by workers too.

        Raises: UsageError for a table of hardware that cannot be read.
        """
        return Sitting(
            device=self.device,
            effort=self.effort,
            impls=self.impls,
            cache=self.cache,
            store=self.store,
            modules=tuple(dict.fromkeys(module for registry in registries for module in registry.modules)),
            table=hardware_table(registries[0].hardware),
            on_progress=on_progress,
        )


def measure_rows(
    rows: Sequence[Row], measuring: Measuring, registry: Registry, on_progress: OnProgress
) -> dict[str, Any]:
    """Fill in ``latencies`` of the block costs of the chosen rows, in place; returns environment and raw times.

    Blocks are measured, not whole models: a block is what combinations differ in. A row whose measurement fails keeps
    its counts and gets the reason as ``error``. Where no process can be started, what was measured until then stays,
    without raw times, and the rows that were not reached have the reason.

    Raises: UsageError as `Measuring.check`.
    """
    sitting = measuring.sitting(registry, on_progress=on_progress)
    chosen = chosen_rows([row for row in rows if row["skipped"] is None], measuring.rows)
    found, in_parts = comparisons(chosen), measuring.rows == PARTS
    try:
        raw = [sitting.fill_parts(Parts(one, registry)) if in_parts else sitting.fill(one) for one in found]
    except MeasureError as error:
        raw, reason = [], str(error)
        for row, cost in (place for one in found for place in one.places if not place[1]["latencies"]):
            note(row, cost, [unsummed(reason) if in_parts else untimed(reason)], [reason])
    return {"environment": measured_on(measuring.device), "measurements": raw}


def measured_on(device: str | None) -> dict[str, Any]:
    """What measurements depend on besides the blocks, as the document holds it."""
    return {"measured_on": environment(resolve_device(device))}


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
