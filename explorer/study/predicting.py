"""Predicted latency of the blocks of a study on named hardware, beside what was measured and never in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Row as LedgerRow
from explorer.errors import MeasureError, UsageError
from explorer.latency.device import device_name, resolve_device
from explorer.latency.piece_key import piece_key, pieces_of
from explorer.latency.temperature import COLD
from explorer.prediction.calibration import stale
from explorer.prediction.hardware_table import HardwareTable, hardware_table
from explorer.prediction.predict import Target, predict
from explorer.prediction.prediction import Prediction
from explorer.prediction.rows import rows_of
from explorer.prediction.store import stored
from explorer.registry.registry import CostRule, Registry
from explorer.study.result import MANY

OnProgress = Callable[[str, int, int], None]

LOCAL = "local"
"""The name of the device at hand, as it was calibrated."""


def targets(names: Sequence[str], registry: Registry, device: str | None) -> dict[str, Target]:
    """What the names stand for: `local` for this device as it was calibrated, all else in the table of hardware.

    Raises: UsageError for a name that is not in the table, and for a device that was not calibrated.
    """
    table = hardware_table(registry.hardware) if any(name != LOCAL for name in names) else HardwareTable({})
    return {name: _local(device) if name == LOCAL else table.find(name) for name in names}


def _local(device: str | None) -> Target:
    import torch

    where = resolve_device(device)
    found = stored(device_name(where), torch.get_num_threads())
    if found is None:
        threads = torch.get_num_threads()
        used = "1 thread" if threads == 1 else f"{threads} threads"
        raise UsageError(
            f"hardware 'local': {device_name(where)} with {used} is not calibrated; run `explorer calibrate`"
        )
    return found


def stale_notes(found: Mapping[str, Target]) -> list[str]:
    """What to say of calibrations that are old, or of another torch."""
    import torch

    from explorer.prediction.calibration import Calibration

    notes = (
        stale(target, dtype, torch.__version__, date.today())
        for target in found.values()
        if isinstance(target, Calibration)
        for dtype in target.dtypes
    )
    return [note for note in notes if note]


def refuse_unshown(rows: int) -> None:
    """Raises: UsageError for more rows than are written as objects: a table of costs has no latencies."""
    if rows > MANY:
        raise UsageError(
            f"a prediction traces the blocks of each row, and these are {rows:,}; it takes {MANY:,} rows at most: give "
            "an axis fewer values (--axis PATH=A,B) or write one (--axis PATH=A)"
        )


def predict_rows(
    rows: Sequence[dict[str, Any]],
    plans: Mapping[str, ModelPlan],
    found: Mapping[str, Target],
    rules: Mapping[str, CostRule],
    on_progress: OnProgress,
) -> None:
    """Append predicted entries to ``latencies`` of the block costs, in place.

    plans: by the id of a row. found: see `targets`. A block that is in several rows is traced once.
    """
    traced: dict[Any, list[LedgerRow] | str] = {}
    for done, row in enumerate(rows):
        on_progress("predicting", done, len(rows))
        for cost in row["costs"]:
            if cost["scope"] == "block" and row["id"] in plans:
                calls = _traced(traced, plans[row["id"]], cost, rules)
                _append(cost, [_predicted(calls, cost, target).entry() for target in found.values()])
    on_progress("predicting", len(rows), len(rows))


def _traced(
    seen: dict[Any, list[LedgerRow] | str], plan: ModelPlan, cost: dict[str, Any], rules: Mapping[str, CostRule]
) -> list[LedgerRow] | str:
    """The operator calls of a block, or why they cannot be had."""
    block, workload = cost["name"], Workload(**cost["workload"])
    pieces = (piece_key(plan, block, piece, workload) for piece in pieces_of(plan, block))
    key = block, workload, *pieces
    if key not in seen:
        try:
            seen[key] = rows_of(plan, block, workload, rules)
        except MeasureError as error:
            seen[key] = str(error)
    return seen[key]


def _predicted(calls: list[LedgerRow] | str, cost: dict[str, Any], target: Target) -> Prediction:
    workload = Workload(**cost["workload"])
    if isinstance(calls, str):
        return replace(predict((), workload, target), reason=calls)
    return predict(calls, workload, target, copies=_copies(cost, target))


def _copies(cost: dict[str, Any], target: Target) -> int | None:
    """Of the weights, as measured on the same device, so that both say how long the same takes; None: not known."""
    alike = (entry for entry in cost["latencies"] if entry["device"] == target.name and entry.get("cache") != COLD)
    return next((entry["copies"] for entry in alike if entry.get("copies")), None)


def _append(cost: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    cost["latencies"] = [*cost["latencies"], *entries]
    cost["latency"] = cost["latencies"][0] if cost["latencies"] else None
