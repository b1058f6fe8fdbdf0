"""One pass through all rows of a study: its flows, and what each group of components adds in each of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic

from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.varied import Places, Varied
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import Step
from explorer.cost.parts.subject import Subject, Subjects, blocks_of
from explorer.cost.parts.walk import walk
from explorer.cost.sweep.cells import BranchCell, NormCell, OutsideCell, Refused
from explorer.cost.sweep.flow import OUTSIDE, Flow, Group, Pattern
from explorer.cost.sweep.outside import outside_term
from explorer.cost.sweep.study import Cell, Study
from explorer.cost.sweep.terms import Differs, Look, Term, V
from explorer.errors import PluginError, RefusedError

FLOW_FIELDS = ("dim", "residual", "placement", "dropout")
"""What decides, with the structure and the step, how a pass flows."""

StepOf = Callable[[Subject], "Step | None"]
"""The pass that a model, or a block alone, makes; None: it does not run."""


@dataclass(frozen=True, eq=False)
class Flows:
    """The pass of a model, or one of each block where there is no model.

    refused: why there is none. failure: why it cannot be observed. warned: what its residuals warn of.
    """

    flows: tuple[Flow, ...] = ()
    refused: str | None = None
    failure: str | None = None
    warned: tuple[str, ...] = ()


@dataclass(eq=False)
class Passed(Generic[V]):
    """Flows at each place, what residuals add, and what each group adds."""

    flows: Varied[Flows]
    own: Varied[Mapping[Any, V]]
    terms: Mapping[Group, Varied[Term[V]]]

    @property
    def refusals(self) -> list[Varied[str | None]]:
        """Why rows cannot be run."""
        found: list[Varied[Any]] = [self.flows, *self.terms.values()]
        return [Varied.map(lambda one: one.refused, varied) for varied in found]

    @property
    def failures(self) -> list[Varied[bool]]:
        """Where a pass cannot be observed part by part."""
        found: list[Varied[Any]] = [self.flows, *self.terms.values()]
        return [Varied.map(lambda one: one.failure is not None, varied) for varied in found]


@dataclass(eq=False)
class Passes:
    """Makes passes through the rows of a study that are alive.

    alive: at each place the place itself, or the number of places (see `marked`). steps: what else than the fields of
    a blueprint decides the step.
    """

    study: Study
    alive: Places
    steps: Sequence[Varied[Any]]
    step_of: Callable[..., Step | None]
    _made: dict[Hashable, Flows] = field(default_factory=dict)

    def flows(self) -> Varied[Flows]:
        """A flow for each way in which a pass may flow, as far as is known."""
        study = self.study
        cells = study.rows.space.cells(FLOW_FIELDS)
        classes = [Varied.map(partial(self._class, group), cells) for group, cells in study.cells.items()]
        numbered = Varied(tuple(range(len(cells.values))), cells.codes, cells.shape)
        keys = Varied.map(lambda *key: key, study.structure, numbered, *self.steps, study.caches, *classes)
        for key, place in zip(keys.values, keys.firsts(self.alive), strict=True):
            if place is not None and key not in self._made:
                self._made[key] = self._flow(place, key[2 : 2 + len(self.steps)])
        return Varied(tuple(self._made.get(key, _NO_FLOW) for key in keys.values), keys.codes, keys.shape)

    def through(self, look: Look[V]) -> Passed[V]:
        """What one pass costs in all rows."""
        while True:
            flows = self.flows()
            own = Varied.map(lambda found: _own(look, found), flows, key=id)
            differing: list[Differs] = []
            terms = {group: self._terms(look, group, differing, flows) for group in self.study.cells}
            if not differing:
                return Passed(flows, own, terms)
            for found in differing:
                known = self.study.classes.setdefault(found.group, {})
                known[found.key] = (known.get(found.key, 0), found.answer)

    def _terms(self, look: Look[V], group: Group, differing: list[Differs], flows: Varied[Flows]) -> Varied[Term[V]]:
        cells = self.study.cells[group]
        if group == OUTSIDE:
            return Varied.map(partial(self._outside, look, differing), flows, cells, key=id)
        patterns = Varied.map(partial(pattern_of, group), flows, key=lambda pattern: pattern and pattern.key)
        return Varied.map(partial(self._term, look, differing), patterns, cells, key=id)

    def _class(self, group: Group, cell: Cell) -> Any:
        """Equal for cells that leave the flow as it is."""
        if not isinstance(cell, BranchCell | NormCell | OutsideCell):
            return None
        known = self.study.classes.get(group, {}).get(cell.key, 0)
        return known, isinstance(cell, NormCell) and cell.module is None

    def _term(self, look: Look[V], differing: list[Differs], pattern: Pattern | None, cell: Cell) -> Term[V]:
        if pattern is None or not isinstance(cell, BranchCell | NormCell) or cell.shares:
            return Term(look.nothing, look.nothing)
        return _tried(look, differing, lambda: look.group(pattern, cell))

    def _outside(self, look: Look[V], differing: list[Differs], flows: Flows, cell: Cell) -> Term[V]:
        if not flows.flows or not isinstance(cell, OutsideCell):
            return Term(look.nothing, look.nothing)
        return _tried(look, differing, lambda: outside_term(look, flows.flows[0], cell))

    def _flow(self, place: int, steps: Sequence[Any]) -> Flows:
        plan = self.study.rows.space.plan(place)
        try:
            with understood("model") as trouble:
                return Flows(tuple(self._walked(plan, steps)), warned=self.study.warnings_of_residuals(plan))
            return Flows(failure=trouble.reason)
        except (RefusedError, PluginError) as error:
            return Flows(refused=Refused.by(error).reason)

    def _walked(self, plan: ModelPlan, steps: Sequence[Any]) -> list[Flow]:
        study = self.study
        subjects = Subjects(plan, study.bench.workshops)
        if plan.whole:
            found: list[tuple[Subject, tuple[str, str] | None]] = [(subjects.model(study.dtype), None)]
        else:
            blocks = blocks_of(plan)
            found = [(subjects.block(block, study.dtype), (block.stack.name, block.name)) for block in blocks]
        flows = []
        for subject, block in found:
            step = self.step_of(subject, *steps)
            if step is not None:
                entries = walk(subject, step, study.bench.observations).entries
                flows.append(Flow(plan, step, entries, block, (*steps, subject.caches)))
        return flows


def _tried(look: Look[V], differing: list[Differs], make: Callable[[], Term[V]]) -> Term[V]:
    """What is made, or why it cannot be."""
    nothing = Term(look.nothing, look.nothing)
    try:
        with understood("model") as trouble:
            try:
                return make()
            except Differs as found:
                differing.append(found)
                return nothing
        return replace(nothing, failure=trouble.reason)
    except (RefusedError, PluginError) as error:
        return replace(nothing, refused=Refused.by(error).reason)


def pattern_of(group: Group, flows: Flows) -> Pattern | None:
    """What is asked of a group in a pass; None: nothing."""
    return next((found for flow in flows.flows if (found := flow.pattern(group)) is not None), None)


_NO_FLOW = Flows()


def _own(look: Look[V], flows: Flows) -> Mapping[Any, V]:
    sums: dict[Any, V] = {None: look.nothing}
    for flow in flows.flows:
        for block, cost in look.own(flow).items():
            sums[block] = sums[block] + cost if block in sums else cost
    return sums
