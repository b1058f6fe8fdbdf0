"""Run a blueprint: count every combination, measure where asked, and put it all in one document."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from explorer.blueprint.axes import plain_axes
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import DEFAULT_LIMIT, Combinations
from explorer.blueprint.load import load
from explorer.cost.counting import Workbench
from explorer.cost.parts.observation import Observations
from explorer.errors import UsageError
from explorer.latency.store import Store
from explorer.registry.registry import CostRule
from explorer.study.auditing import DEFAULT_ROWS, Audited, audited, spread
from explorer.study.crosschecking import crosschecked, refuse_many
from explorer.study.large import Table
from explorer.study.measuring import ALL, Measuring, measure_rows
from explorer.study.one_by_one import OneByOne, count_one_by_one
from explorer.study.predicting import predict_rows, refuse_unshown, stale_notes, targets
from explorer.study.result import MANY, Result
from explorer.study.swept import Swept, sweep_rows

OnProgress = Callable[[str, int, int], None]

FEW = 24
"""Rows up to which each is counted by itself; beyond, arrays over all rows cost less."""


def run(
    blueprint: Blueprint | str | Path | Mapping[str, Any],
    *,
    measure: bool | str = False,
    effort: str = "default",
    device: str | None = None,
    impls: Sequence[str] = ("eager",),
    cache: str = "auto",
    store: Store | Path | None = None,
    hardware: Sequence[str] = (),
    limit: int = DEFAULT_LIMIT,
    audit: int | None = None,
    crosscheck: bool = False,
    default_tokens: int | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """What every combination takes, and its latency where ``measure`` is set.

    blueprint: loaded, or what ``load`` takes.
    measure: False, True for all rows, or which: ``all``, ``parts``, ``pareto`` or a number (see ``Measuring``). effort:
    ``quick``, ``default`` or ``publish``. device: where to measure; None: CUDA where there is one, else the CPU. impls:
    ``eager``, ``compile``. cache: ``auto``, ``warm``, ``rotate``, ``flush``. store: a file that keeps what is measured;
    a run that is repeated with it takes up where it stopped. Where measuring ends early, the rows that it did not reach
    have the reason as ``error``.
    hardware: names of devices that latency is predicted for; ``local``: this one, as ``explorer calibrate`` found it.
    limit: most combinations. audit: rows that are traced as a whole and must show the numbers that were summed; None: a
    few, for some seconds. crosscheck: also run other counters on each block, seconds for each row. default_tokens: of a
    workload that writes none; None: as many as every row can take. on_progress: called with what is being done, how
    many of it are, and of how many.

    Raises: UsageError (limit, audit, rows to cross-check or to predict, what belongs to measuring), BlueprintError or
    RefusedError where no combination is left.
    """
    progress = on_progress or (lambda stage, done, total: None)
    # What is wrong with the options is told before the work, and without measuring too.
    kept = Store(store) if isinstance(store, Path) else store
    measuring = Measuring(ALL if measure is True else str(measure), effort, device, tuple(impls), cache, kept)
    replace(measuring, rows=measuring.rows if measure else ALL).check()
    if audit is not None and audit < 0:
        raise UsageError(f"audit must be a number of rows, 0 or more, not {audit}")
    if not isinstance(blueprint, Blueprint):
        blueprint = load(blueprint)
    predicted = targets(hardware, blueprint.registry, device)
    combinations = blueprint.combinations(limit)
    if crosscheck:
        refuse_many(len(combinations.places))
    if predicted and not measure:
        refuse_unshown(len(combinations.places))
    rules = blueprint.registry.cost_rules
    count = partial(_count, blueprint, combinations, default_tokens, progress, one_by_one=bool(measure))
    counted, confirmed = _confirmed(count, rules, audit, progress)
    document = _document(blueprint, combinations, counted)
    document["audit"] = confirmed
    if isinstance(counted, Swept) and len(combinations.places) > MANY:
        table = Table(counted)
        document["skipped_reasons"] = table.reasons()
        return Result(document, Rows(counted), table)
    rows = list(Rows(counted))
    if crosscheck:
        _crosscheck(rows, counted, rules, progress)
    if measure:
        told = measure_rows(rows, measuring, blueprint.registry, progress)
        document["environment"] |= told["environment"]
        document["measurements"] = told["measurements"]
    if predicted:
        plans = {row.id: row.plan for row in combinations.rows if row.plan is not None}
        predict_rows(rows, plans, predicted, rules, progress)
        document["prediction_notes"] = stale_notes(predicted)
    return Result(document, rows)


def _confirmed(
    count: Callable[[Workbench], OneByOne | Swept],
    rules: Mapping[str, CostRule],
    audit: int | None,
    progress: OnProgress,
) -> tuple[OneByOne | Swept, dict[str, Any]]:
    """All rows, and what whole passes of some say of them.

    Where those say something else, what looks alike is not: all is counted anew, and nothing is told by what looks
    alike.
    """
    for exact in (False, True):
        bench = Workbench(Observations(rules, exact))
        counted = count(bench)
        found = {**_audit(counted, audit, bench, progress), "anew": exact}
        if not found["mismatches"]:
            break
    return counted, found


def _count(
    blueprint: Blueprint,
    combinations: Combinations,
    tokens: int | None,
    progress: OnProgress,
    bench: Workbench,
    *,
    one_by_one: bool,
) -> OneByOne | Swept:
    if one_by_one or len(combinations.places) <= FEW:
        return count_one_by_one(blueprint, combinations, tokens, bench, progress)
    return sweep_rows(blueprint, combinations, tokens, bench, progress)


class Rows(Sequence[dict[str, Any]]):
    """The rows of a result with their baselines, each made when it is asked for."""

    def __init__(self, counted: OneByOne | Swept):
        self._counted = counted
        self._ids = counted.combinations.ids()
        self._partners = counted.combinations.partners(counted.dead)

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        partner = int(self._partners[index])
        base = None if partner < 0 else str(self._ids[partner])
        return {**self._counted.row(index), "baseline": partner == index, "baseline_id": base}


def _audit(counted: OneByOne | Swept, asked: int | None, bench: Workbench, progress: OnProgress) -> dict[str, Any]:
    """What whole passes of some rows say of the sums."""
    alive = np.flatnonzero(~counted.dead)
    chosen = [int(alive[at]) for at in spread(DEFAULT_ROWS if asked is None else asked, len(alive))]

    def row(index: int) -> Callable[[], Audited]:
        def make() -> Audited:
            one = counted.combinations.rows[index]
            assert one.plan is not None, one
            return one.id, one.plan, counted.counted(one, index)

        return make

    return audited([row(index) for index in chosen], bench, asked is not None, progress)


def _crosscheck(
    rows: Sequence[dict[str, Any]], counted: OneByOne | Swept, rules: Mapping[str, CostRule], progress: OnProgress
) -> None:
    """Put into each row that lives what other counters print for its blocks."""
    for index, row in enumerate(rows):
        progress("running other counters", index, len(rows))
        one = counted.combinations.rows[index]
        if row["skipped"] is None and one.plan is not None:
            row["crosscheck"] = crosschecked(one.plan, counted.counted(one, index), rules)
    progress("running other counters", len(rows), len(rows))


def _document(blueprint: Blueprint, combinations: Combinations, counted: OneByOne | Swept) -> dict[str, Any]:
    skipped = int(counted.dead.sum())
    return {
        "schema": 1,
        "blueprint": {"name": blueprint.name, "path": blueprint.path, "digest": blueprint.digest},
        "environment": _environment(blueprint),
        "axes": plain_axes(blueprint.axes),
        "counts": {
            "product": combinations.product,
            "rows": len(combinations.places) - skipped,
            "skipped": skipped,
            "merged": combinations.merged,
        },
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
