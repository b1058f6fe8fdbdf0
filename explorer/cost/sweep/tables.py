"""Parameters of positions that act inside attention: tables of a stack, which several of its layers read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from explorer.assembly.positions import acts_in_attention
from explorer.blueprint.varied import Varied
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.tape import addition
from explorer.cost.parts.trees import Like
from explorer.cost.sweep.cells import BranchCell
from explorer.cost.sweep.flow import Flow, Group, Place
from explorer.cost.sweep.passes import Flows
from explorer.cost.sweep.structure import Structure
from explorer.cost.sweep.study import Cell, Study
from explorer.cost.sweep.terms import call
from explorer.cost.sweep.values import Amount, Size


@dataclass(frozen=True)
class Tables:
    """positions: distinct ones with parameters, of all stacks.

    joins: additions of their gradients, in all (None) and in the last layer of each block.
    """

    positions: tuple[nn.Module, ...] = ()
    joins: Mapping[Any, Amount] | None = None

    @property
    def key(self) -> Hashable:
        """Equal for the same tables with equal additions."""
        joins = [(block, tuple(amount.by_kind.items())) for block, amount in (self.joins or {}).items()]
        return tuple(map(id, self.positions)), tuple(joins)

    @cached_property
    def size(self) -> Size:
        return Size.of(self.positions)

    @property
    def numel(self) -> int:
        return self.size.params


def tables(study: Study, flows: Varied[Flows], observations: Observations) -> Varied[Tables]:
    """The tables at each place, and for a pass of training what their gradients take."""
    groups = [group for group, cells in study.cells.items() if any(map(_positions, cells.values))]
    if not groups:
        return Varied.constant(Tables(), study.rows.space.grid.shape)
    cells = [study.cells[group] for group in groups]
    trains = any(flow.step.train for found in flows.values for flow in found.flows)
    passes = flows if trains else Varied.constant(Flows(), flows.shape)

    def held(structure: Structure, found: Flows, *here: Cell) -> Tables:
        used = dict(structure.counted())
        there = {group: cell for group, cell in zip(groups, here, strict=True) if group.of in used}
        return _tables(found, there, observations)

    return Varied.map(held, study.structure, passes, *cells, key=lambda tables: tables.key)


def _positions(cell: Cell) -> list[nn.Module]:
    """Positions with parameters that an attention reads in every call."""
    if not isinstance(cell, BranchCell):
        return []
    own = (position for position in cell.branch.positions if acts_in_attention(type(position)))
    return [position for position in own if next(position.parameters(), None) is not None]


def _tables(flows: Flows, there: Mapping[Group, Cell], observations: Observations) -> Tables:
    # One instance for each stack: the same object in two stacks of a workshop stands for two.
    positions = {(group.stack, id(p)): p for group, cell in there.items() for p in _positions(cell)}
    joins: dict[Any, Amount] = {}
    for flow in flows.flows:
        if flow.step.train:
            for block, amount in _joins(flow, there, observations).items():
                joins[block] = joins.get(block, Amount()) + amount
    return Tables(tuple(positions.values()), joins)


def _joins(flow: Flow, cells: Mapping[Group, Cell], observations: Observations) -> dict[Any, Amount]:
    """Every layer's gradient of a table is added to that of the layers behind it."""
    uses = sorted(_uses(flow, cells, observations), key=lambda use: use[0], reverse=True)
    seen: set[tuple[str, int]] = set()
    sums: dict[Any, Amount] = {}
    for place, group, weight in uses:
        key = group.stack, id(weight)
        if key in seen:
            like = Like.of(weight.detach())
            amount = Amount({"residual": addition(like, like)})
            blocks: list[Any] = [None]
            blocks += [group.of] if group.of and flow.last[group.of] == place[0] else []
            for block in blocks:
                sums[block] = sums.get(block, Amount()) + amount
        seen.add(key)
    return sums


def _uses(flow: Flow, cells: Mapping[Group, Cell], observations: Observations) -> Iterable[tuple[Place, Group, Tensor]]:
    """Where a gradient comes back to a parameter of a position, each with the layer and its site."""
    for group, cell in cells.items():
        calls, pattern = flow.groups.get(group), flow.pattern(group)
        if calls is None or pattern is None or not isinstance(cell, BranchCell):
            continue
        tables = {id(p) for position in _positions(cell) for p in position.parameters()}
        for asked, places in calls.places.items():
            if asked.grads is None:
                continue
            entry = call(observations, pattern, cell, asked)
            reached = entry.observation.backward(asked.grads).weights
            pairs: Sequence[tuple[Tensor, bool]] = list(zip(entry.part.weights, reached, strict=True))
            for place in places:
                assert place is not None, group
                yield from ((place, group, w) for w, there in pairs if there and id(w) in tables)
