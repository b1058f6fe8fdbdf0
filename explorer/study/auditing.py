"""Whole passes of some rows, against the sums that were reported for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from explorer.blueprint.plan import ModelPlan
from explorer.cost.audit import audit
from explorer.cost.costs import Cost, Counted
from explorer.cost.counting import Workbench
from explorer.cost.parts.subject import Subject, Subjects, blocks_of
from explorer.cost.parts.workshop import warnings_told

OnProgress = Callable[[str, int, int], None]
Audited = tuple[str, ModelPlan, Counted]
"""The id of a row, its plan, and what was reported of it."""

DEFAULT_ROWS = 8
SECONDS = 10.0
"""How long an audit that nobody asked for may take."""


def spread(count: int, total: int) -> list[int]:
    """So many indices of `total`, first and last among them, evenly spread."""
    if count >= total:
        return list(range(total))
    return sorted({round(index * (total - 1) / max(count - 1, 1)) for index in range(count)})


def audited(
    rows: Sequence[Callable[[], Audited]], bench: Workbench, asked: bool, progress: OnProgress
) -> dict[str, Any]:
    """Trace each row as a whole, and say where a number is not what was reported.

    asked: whether the user named a number of rows; else the audit ends before it takes more than some seconds.
    """
    began = time.monotonic()
    found: list[dict[str, Any]] = []
    done = 0
    for make in rows:
        progress("tracing whole rows", done, len(rows))
        identity, plan, counted = make()
        if not asked and time.monotonic() - began + _seconds(plan, counted) > SECONDS:
            break
        with warnings_told():  # the row has told them
            found += [{"id": identity, **mismatch} for mismatch in _mismatches(plan, counted, bench)]
        done += 1
    progress("tracing whole rows", done, done)
    return {"rows": done, "planned": len(rows), "mismatches": found}


def _seconds(plan: ModelPlan, counted: Counted) -> float:
    """About how long whole passes of a row take: every layer is run, one after the other."""
    layers = sum(len(stack.layers) for stack in plan.stacks)
    passes = sum(_PER_LAYER[cost.workload.phase] for cost in counted.costs if cost.scope == "model")
    return layers * passes


_PER_LAYER = {"prefill": 0.02, "decode": 0.04, "train": 0.06}
"""Seconds."""


def _mismatches(plan: ModelPlan, counted: Counted, bench: Workbench) -> list[dict[str, Any]]:
    found = []
    for subject, costs in _passes(Subjects(plan, bench.workshops), counted.costs):
        about = {"workload": costs[0].workload.to_dict()}
        found += [about | vars(one) for one in audit(costs, counted.params, subject, bench.observations)]
    return found


def _passes(subjects: Subjects, costs: Sequence[Cost]) -> Iterator[tuple[Subject, list[Cost]]]:
    """What a pass by itself shows: a model, or where there is none each block; and the costs that it shows."""
    if subjects.plan.whole:
        for workload, group in groupby(costs, lambda cost: cost.workload):
            of_pass = list(group)
            if of_pass[-1].counts is not None:
                yield subjects.model(workload.dtype), of_pass
        return
    blocks = {block.label: block for block in blocks_of(subjects.plan)}
    for cost in costs:
        block = blocks[cost.name]
        idle = block.in_encoder and cost.workload.source_is_cached
        if cost.counts is not None and not idle:
            yield subjects.block(block, cost.workload.dtype), [cost]
