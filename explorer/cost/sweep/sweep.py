"""Counts all rows of a study at once: each component once for each way in which it is asked, then sums of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from explorer.assembly.construction import dtype_of
from explorer.assembly.head import LmHead
from explorer.blueprint.combinations import Combinations
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.varied import Mask, Places, Varied, marked
from explorer.blueprint.workload import DEFAULT_TOKENS, Workload
from explorer.cost.counting import Workbench, settle
from explorer.cost.growth import Rate
from explorer.cost.parts.observation import Step
from explorer.cost.parts.observing import kind_of, step_of
from explorer.cost.parts.subject import Subject, longest, numel
from explorer.cost.parts.tape import Entry, Joined, addition
from explorer.cost.sweep.cells import OutsideCell, Refused
from explorer.cost.sweep.loads import Loads
from explorer.cost.sweep.memories import Memories
from explorer.cost.sweep.passes import Passed, Passes
from explorer.cost.sweep.study import Study
from explorer.cost.sweep.terms import Look
from explorer.cost.sweep.values import Amount, Size, Use
from explorer.errors import PluginError, RefusedError

SIZED = "bfloat16"
"""The dtype in which parameters are counted: their number does not depend on it."""

Given = tuple[Any, ...]
_LENGTHS = ("dim", "heads", "head_dim", "position", "causal", "layers")
_Settled = Varied["Workload | Refused | None"]


@dataclass(eq=False)
class Sweep:
    """All rows of a study on its workloads.

    tokens: of a workload that writes none; None: as many as all rows can take. reasons: why rows are left out. apart:
    where costs are no sums of what components cost alone: such rows are to be counted one by one.
    """

    rows: Combinations
    workloads: Sequence[Workload]
    tokens: int | None = None
    bench: Workbench = field(default_factory=Workbench)
    reasons: Reasons = field(init=False)
    apart: Mask = field(init=False)
    _studies: dict[str, Study] = field(default_factory=dict)
    _sizes: dict[str, Passed[Size]] = field(default_factory=dict)
    _one_token: dict[str, Passes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reasons = Reasons(np.full(self.rows.product, -1, np.int32))
        self.apart = self._apart()
        self._run()

    def study(self, dtype: str = SIZED) -> Study:
        """What the rows are made of, in one dtype."""
        return self._studies.setdefault(dtype, Study(self.rows, self.bench, dtype))

    @cached_property
    def default_tokens(self) -> int:
        """Tokens of a workload that writes none."""
        if self.tokens is not None:
            return self.tokens
        tables = self.study().ask(_LENGTHS, _shortest)
        return min([DEFAULT_TOKENS, *(table for table in tables.values if table is not None)])

    @cached_property
    def settled(self) -> list[_Settled]:
        """Each workload as it is on the plan of each place."""
        study, tokens = self.study(), self.default_tokens

        def of(workload: Workload) -> _Settled:
            return Varied.map(lambda plan: _settled(workload, tokens, plan), study.plans(_LENGTHS))

        return [of(workload) for workload in self.workloads]

    @property
    def alive(self) -> Places:
        """At each place the place itself where a row stands there that is counted with the others, else the size."""
        kept = self.rows.places[~self.rows.skipped]
        return marked(kept[(self.reasons.codes[kept] < 0) & ~self.apart[kept]], self.rows.product)

    def _apart(self) -> Mask:
        """Where components share something, cannot be observed on meta, or keep no cache though they are causal."""
        study = self.study()
        limited = Varied.map(lambda caches: any(caches[0] or ()) and any(caches[1]), study.caches)
        return study.apart | limited.everywhere()

    def _run(self) -> None:
        """Look at everything, and find out which rows cannot be built or run."""
        study = self.study()
        for varied in (*(Varied.map(_reason, workload) for workload in self.settled), *study.refusals, *study.broken):
            self.reasons.add(varied)
        flows = self._of_one_token(SIZED).flows()
        self.reasons.add(Varied.map(lambda found: found.refused, flows))
        everything: list[Passed[Any]] = [self.sizes(), self.uses, *self.amounts, *self.rates]
        for passed in everything:
            for refusal in passed.refusals:
                self.reasons.add(refusal)
            for failure in passed.failures:
                self.apart = self.apart | failure.everywhere()
        for memory in self.memories:
            for failure in memory.failures:
                self.apart = self.apart | failure.everywhere()

    def _of_one_token(self, dtype: str) -> Passes:
        if dtype not in self._one_token:
            study = self.study(dtype)
            self._one_token[dtype] = Passes(study, self.alive, (study.ask(_LENGTHS, _table),), _one_token)
        return self._one_token[dtype]

    @cached_property
    def amounts(self) -> list[Passed[Amount]]:
        """For each workload what it takes."""
        found = []
        for workload, settled in zip(self.workloads, self.settled, strict=True):
            study = self.study(workload.dtype)
            passes = Passes(study, self.alive, (settled,), _of_workload)
            found.append(passes.through(Look(self.bench.observations, Amount(), _amount, _joined)))
        return found

    @cached_property
    def memories(self) -> list[Memories]:
        """For each workload what it needs in memory."""
        loads = Loads(self.bench.observations, self.bench.footprints)
        return [
            Memories(self.study(workload.dtype), passed.flows, loads, workload.settled().recompute)
            for workload, passed in zip(self.workloads, self.amounts, strict=True)
        ]

    @cached_property
    def uses(self) -> Passed[Use]:
        """Parameters that one token uses, but for those of residuals and outside the layers."""
        passes = self._of_one_token(SIZED)

        def use(entry: Entry, given: Given) -> Use:
            return Use(self.bench.usages.group([entry])) if entry.part.modules else Use()

        def outside(entries: Sequence[Entry], cell: OutsideCell) -> Use:
            return Use(self.bench.usages.group(entries)) if entries else Use()

        return passes.through(Look(self.bench.observations, Use(), use, lambda join: Use(), outside))

    def sizes(self, dtype: str = SIZED) -> Passed[Size]:
        """Parameters. Every module is called once in a pass, so a pass of one token counts them."""
        if dtype not in self._sizes:
            passes = self._of_one_token(dtype)
            look = Look(self.bench.observations, Size(), _size, lambda join: Size(), _size_outside)
            self._sizes[dtype] = passes.through(look)
        return self._sizes[dtype]

    @cached_property
    def rates(self) -> list[Passed[Rate]]:
        """For each workload how the cache grows with a token."""
        return [self._grown(w.dtype, dtype_of(w.kv_dtype or w.dtype)) for w in self.workloads]

    def _grown(self, dtype: str, kv_dtype: torch.dtype) -> Passed[Rate]:
        def rate(entry: Entry, given: Given) -> Rate:
            table, caches = given
            keeps = caches and entry.part.takes_cache and entry.part.role.stack != "encoder"
            return self.bench.growths.rate(entry, kv_dtype, table) if keeps else Rate()

        passes = self._of_one_token(dtype)
        return passes.through(Look(self.bench.observations, Rate(), rate, lambda join: Rate()))


@dataclass(eq=False)
class Reasons:
    """Why rows are left out: an index into texts at each place, -1 where they are not. The first reason stays."""

    codes: NDArray[np.int32]
    texts: list[str] = field(default_factory=list)

    def add(self, varied: Varied[str | None]) -> None:
        numbers = [-1 if reason is None else self._number(reason) for reason in varied.values]
        if any(number >= 0 for number in numbers):
            found = np.broadcast_to(np.asarray(numbers, np.int32)[varied.codes], varied.shape).reshape(-1)
            self.codes = np.where(self.codes < 0, found, self.codes)

    def _number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)


def _reason(workload: Workload | Refused | None) -> str | None:
    return workload.reason if isinstance(workload, Refused) else None


def _shortest(plan: ModelPlan) -> int | None:
    try:
        return min(longest(plan).values(), default=None)
    except (RefusedError, PluginError):
        return None


def _table(plan: ModelPlan) -> int | None:
    try:
        return longest(plan).get(plan.stack.name)
    except (RefusedError, PluginError):
        return None


def _settled(workload: Workload, tokens: int, plan: ModelPlan | None) -> Workload | Refused | None:
    if plan is None:
        return None
    try:
        (full,) = settle(plan, [workload], tokens)
    except (RefusedError, PluginError) as error:
        return Refused.by(error)
    return full


def _one_token(subject: Subject, table: int | None) -> Step:
    return Step(1, 1, 1 if subject.reads_source else None)


def _of_workload(subject: Subject, workload: Workload) -> Step | None:
    if subject.of is None or not subject.of.in_encoder:
        return step_of(subject, workload)
    return None if workload.source_is_cached else step_of(subject, workload.of_source())


def _amount(entry: Entry, given: Given) -> Amount:
    seen = entry.observation
    return Amount({kind_of(entry.part.role): seen.total(entry.grads)}, seen.cache_bytes)


def _joined(join: Joined) -> Amount:
    return Amount({"residual": addition(*join)})


def _size(entry: Entry, given: Given) -> Size:
    """Of the module that is called: a residual's read counts for it, positions are the stack's."""
    role = entry.part.role
    if role.name in ("enter", "write") or not entry.part.modules:
        return Size()
    return Size.of([entry.part.modules[0]])


def _size_outside(entries: Sequence[Entry], cell: OutsideCell) -> Size:
    head = cell.head
    table = head.tied[0] if isinstance(head, LmHead) else None
    return Size.of(cell.modules) + Size({}, 0 if table is None else numel(table))
