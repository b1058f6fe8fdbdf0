"""What stands where in all rows of a study: plans, components and refusals as values that vary along few axes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch

from explorer.assembly.construction import construction, dtype_of
from explorer.assembly.init import silent_branch
from explorer.assembly.refusals import attention_reason, placement_reason, position_reason
from explorer.assembly.residual import Residual
from explorer.blueprint.combinations import Combinations
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.blueprint.varied import Mask, Varied
from explorer.cost.counting import Workbench
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import Observations, Step
from explorer.cost.parts.part import Role
from explorer.cost.parts.parts import Parts
from explorer.cost.parts.subject import blocks_of
from explorer.cost.parts.trees import Like
from explorer.cost.parts.workshop import Workshop, warnings_told
from explorer.cost.sweep.cells import (
    FIELDS,
    BranchCell,
    NormCell,
    OutsideCell,
    Refused,
    branch_cell,
    final_norm_cell,
    norm_cell,
    outside_cell,
    sites_of,
)
from explorer.cost.sweep.flow import OUTSIDE, Asked, Group
from explorer.cost.sweep.structure import Structure, structures
from explorer.errors import PluginError, RefusedError

R = TypeVar("R")
Cell = BranchCell | NormCell | OutsideCell | Refused | None
Plans = Varied["ModelPlan | None"]
_LAYERS = ("layers", "vocab")
"""What decides which blocks count."""


@dataclass(eq=False)
class Study:
    """The rows of a study, and what they are made of, in one dtype.

    classes: by group and the key of a cell what tells cells apart that leave a flow otherwise than others.
    """

    rows: Combinations
    bench: Workbench
    dtype: str
    classes: dict[Group, dict[Hashable, Any]] = field(default_factory=dict)
    _plans: dict[tuple[str, ...], Plans] = field(default_factory=dict)
    _probes: dict[Hashable, tuple[str | None, str | None]] = field(default_factory=dict)

    @cached_property
    def structure(self) -> Varied[Structure]:
        return structures(self.rows.space)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """All places of a model where components stand, over all structures."""
        found: dict[Group, None] = {}
        for structure in self.structure.values:
            for stack, block, _ in structure.blocks():
                found[Group("norm", stack.name, block.name)] = None
                found.update((Group("branch", stack.name, block.name, name), None) for name in block.sublayers)
            if structure.whole:
                found.update((Group("final_norm", stack.name), None) for stack in structure.stacks)
                found[OUTSIDE] = None
        return tuple(found)

    def plans(self, fields: Sequence[str]) -> Plans:
        """At each place a plan that has these fields as they are there; None where no row has them so."""
        key = tuple(sorted(fields))
        if key not in self._plans:
            cells = self.rows.space.cells(key)
            places = self.rows.representatives(cells)
            plans = [None if place is None else self.rows.space.plan(place) for place in places]
            self._plans[key] = Varied(tuple(plans), cells.codes, cells.shape)
        return self._plans[key]

    def ask(self, fields: Sequence[str], ask: Callable[[ModelPlan], R | None]) -> Varied[R | None]:
        """A question about plans that depends on these fields alone."""
        return Varied.map(lambda plan: None if plan is None else ask(plan), self.plans(fields))

    @cached_property
    def cells(self) -> Mapping[Group, Varied[Cell]]:
        """What stands at each place of a model."""
        with construction(0, "meta", dtype_of(self.dtype)):
            return {group: self._cell(group) for group in self.groups}

    def _cell(self, group: Group) -> Varied[Cell]:
        workshop = self._workshop
        kind = group.sublayer or group.kind
        make: Mapping[str, Callable[[ModelPlan | None], Cell]] = {
            "norm": lambda plan: norm_cell(plan, group.stack, group.block, workshop),
            "final_norm": lambda plan: final_norm_cell(plan, group.stack, workshop),
            "outside": lambda plan: outside_cell(plan, workshop),
        }
        branch = partial(_branch, group, workshop)
        return Varied.map(partial(_told, make.get(kind, branch)), self.plans(FIELDS[kind]), key=_key)

    @cached_property
    def refusals(self) -> Sequence[Varied[str | None]]:
        """Why rows cannot be built, in the order in which it is looked for."""
        found = [
            self.ask((*_LAYERS, "placement", "residual"), _first(lambda b, stack: placement_reason(b, stack.residual))),
            self.ask((*_LAYERS, "attention", "window", "causal"), _first(lambda block, _: attention_reason(block))),
            self.ask((*_LAYERS, "position"), _first(position_reason)),
        ]
        for group, cells in self.cells.items():
            reasons = Varied.map(lambda cell: cell.reason if isinstance(cell, Refused) else None, cells)
            found.append(Varied.map(partial(_where_used, group), self.structure, reasons))
            if group.kind == "branch":
                found.append(Varied.map(partial(_silent, self._workshop), self.plans(("dim", "residual")), cells))
        return found

    @cached_property
    def caches(self) -> Varied[Any]:
        """What decides whether keys and values are kept: which blocks are causal, and which attentions take a cache."""
        cells = [cells for group, cells in self.cells.items() if group.sublayer not in ("", "feedforward")]
        causal = self.ask(("causal", "layers"), _causal)
        return Varied.map(lambda blocks, *found: (blocks, tuple(map(_keeps_nothing, found))), causal, *cells)

    @cached_property
    def apart(self) -> Mask:
        """Where rows must be counted one by one: components share something, or cannot be observed on meta."""
        found = np.zeros(self.rows.product, np.bool_)
        for group, cells in self.cells.items():
            if group.kind == "branch":
                found |= Varied.map(self._is_apart, cells).everywhere()
        return found

    @cached_property
    def broken(self) -> Sequence[Varied[str | None]]:
        """What plugins did wrong, as one token through each sublayer shows."""
        return [Varied.map(lambda cell: self._probed(cell)[0], cells) for group, cells in self.cells.items()]

    def _is_apart(self, cell: Cell) -> bool:
        if not isinstance(cell, BranchCell):
            return False
        entangled = cell.module in self._workshop.entangled or cell.shares
        return entangled or self._probed(cell)[1] is not None

    def _probed(self, cell: Cell) -> tuple[str | None, str | None]:
        """What is wrong with a sublayer, and why it cannot be observed."""
        if not isinstance(cell, BranchCell):
            return None, None
        if cell.key not in self._probes:
            whole = any(structure.whole for structure in self.structure.values)
            label = "model" if whole else cell.stack.label(cell.block.name)
            self._probes[cell.key] = _probe(cell, self.bench.observations, dtype_of(self.dtype), label)
        return self._probes[cell.key]

    def warnings_of_residuals(self, plan: ModelPlan) -> tuple[str, ...]:
        """What the residuals of a plan say while they are built."""
        with warnings_told() as said, construction(0, "meta", dtype_of(self.dtype)):
            for stack in plan.stacks:
                sites = sites_of(plan, stack)
                places = (site for layer in range(len(stack.layers)) for site in sites.of(layer))
                for site in places:
                    self._workshop.make(stack.residual, {"dim": plan.dim, "site": site})
        return tuple(said)

    @property
    def _workshop(self) -> Workshop:
        return self.bench.workshops.setdefault(self.dtype, Workshop())


def _told(make: Callable[[ModelPlan | None], Cell], plan: ModelPlan | None) -> Cell:
    """What is made, with what it said while it was built."""
    with warnings_told() as said:
        cell = make(plan)
    return cell if cell is None or isinstance(cell, Refused) or not said else replace(cell, warned=tuple(said))


def _causal(plan: ModelPlan) -> tuple[bool, ...]:
    return tuple(block.caches for block in blocks_of(plan) if block.stack is plan.stack)


def _keeps_nothing(cell: Cell) -> bool:
    return isinstance(cell, BranchCell) and cell.stack.name != "encoder" and "cache" in dict(cell.limits)


def _branch(group: Group, workshop: Workshop, plan: ModelPlan | None) -> Cell:
    return branch_cell(plan, group.stack, group.block, group.sublayer, workshop)


def _key(cell: Cell) -> Hashable:
    return cell if cell is None or isinstance(cell, Refused) else (type(cell), cell.key)


def _first(reason: Callable[[Any, StackPlan], str | None]) -> Callable[[ModelPlan], str | None]:
    """The first reason that holds for a block that counts."""

    def ask(plan: ModelPlan) -> str | None:
        blocks = ((of.stack.blocks[of.name], of.stack) for of in blocks_of(plan))
        return next((found for block, stack in blocks if (found := reason(block, stack)) is not None), None)

    return ask


def _where_used(group: Group, structure: Structure, reason: str | None) -> str | None:
    if reason is None or group.of is None:
        return reason
    return reason if group.of in dict(structure.counted()) else None


def _silent(workshop: Workshop, plan: ModelPlan | None, cell: Cell) -> str | None:
    """Why a residual cannot initialise a sublayer, or None."""
    if plan is None or not isinstance(cell, BranchCell):
        return None
    stack = next((stack for stack in plan.stacks if stack.name == cell.stack.name), None)
    constructor = None if stack is None else stack.residual.component.constructor
    # A function's residual is seen where a flow is made.
    if not isinstance(constructor, type) or not issubclass(constructor, Residual):
        return None
    return silent_branch(constructor, [cell.module])


def _probe(
    cell: BranchCell, observations: Observations, dtype: torch.dtype, label: str
) -> tuple[str | None, str | None]:
    """One token through a sublayer: what its code does wrong, and why it cannot be observed on meta."""
    like = Like((1, 1, cell.plan.dim), (cell.plan.dim, cell.plan.dim, 1), dtype)
    asked = Asked("branch", Step(1, 1), like, like if cell.branch.wiring.cross else None, None)
    part = Parts(observations.kind).branch(Role("", "branch", "", cell.name), cell.branch, cell.chosen, cached=False)
    inputs = asked.inputs(cell.branch.wiring.names, cell.plan.vocab is not None)
    if "shared" in cell.branch.wiring.names:
        inputs["shared"] = {}
    try:
        with understood(label) as trouble, torch.no_grad():
            observations.of(part, inputs, asked.step)
    except (RefusedError, PluginError) as error:
        return Refused.by(error).reason, None
    return None, trouble.reason or None
