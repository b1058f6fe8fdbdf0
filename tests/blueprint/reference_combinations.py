"""Every row of a study made by itself: the changes of its options applied one after the other to the whole state.

Slow and plain, to compare the arrays of ``explorer.blueprint.combinations`` with. What two rows share (how a change is
written, what stands against a plan, whether one condition of a skip rule holds) is the explorer's own; which changes
reach a row, what rests, what is merged, skipped and compared with what is worked out here.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from explorer.blueprint.axes import Axis, Option
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.changes import Change
from explorer.blueprint.fields import DECODER, READ_BY_STACK
from explorer.blueprint.plan import UNNAMED, ModelPlan
from explorer.blueprint.reading import Reader, distinct, in_order
from explorer.blueprint.resolve import NORMS_AT_THE_END, resolve
from explorer.blueprint.skips import Rule
from explorer.blueprint.state import Fields, Setting, State
from explorer.blueprint.writing import Writer, unreached_problem
from explorer.errors import NOWHERE, BlueprintError, Problem

Index = tuple[int, ...]
MOST_PROBLEMS = 50


@dataclass(frozen=True)
class Row:
    index: Index
    choices: Mapping[str, str]
    state: State
    plan: ModelPlan | None
    skipped: str | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Rows:
    """row_at: the row of each place in the product, in the order of places."""

    rows: tuple[Row, ...]
    row_at: Mapping[Index, int]

    def baselines(self, blueprint: Blueprint, dead: frozenset[int]) -> list[int | None]:
        """The row that each is compared with, None where that is dead."""
        fixed = blueprint.baseline.indexes
        if fixed is None:
            return [next((at for at in range(len(self.rows)) if at not in dead), None)] * len(self.rows)
        homes: dict[int, Index] = {}
        for index, at in self.row_at.items():
            homes.setdefault(at, index)
        names = [axis.name for axis in blueprint.axes]
        places = [tuple(fixed.get(name, i) for name, i in zip(names, homes[at], strict=True)) for at in homes]
        return [partner if (partner := self.row_at[place]) not in dead else None for place in places]


def combinations(blueprint: Blueprint) -> Rows:
    """Every row of a study.

    Raises: BlueprintError as ``Blueprint.combinations`` does.
    """
    maker = _Maker(blueprint)
    places: dict[Hashable, int] = {}
    rows: list[Row] = []
    row_at: dict[Index, int] = {}
    for index in itertools.product(*(range(len(axis.options)) for axis in blueprint.axes)):
        state, lost = maker.written(index)
        at = row_at[index] = places.setdefault(_form(state), len(rows))
        if at == len(rows):
            rows.append(maker.row(index, state, lost))
        elif rows[at].skipped and not rows[at].problems:
            # A rule may skip an option's name; the same model under another name is still wanted.
            row = maker.row(index, state, lost)
            rows[at] = row if row.skipped is None else rows[at]
    maker.raise_problems()
    if all(row.skipped for row in rows):
        raise BlueprintError(_reasons(rows, blueprint.skips))
    return Rows(tuple(rows), row_at)


def _reasons(rows: Sequence[Row], skips: Sequence[Rule]) -> Sequence[Problem]:
    found = in_order([problem for row in rows for problem in row.problems])
    if found:
        return found[:MOST_PROBLEMS]
    reasons = dict.fromkeys(row.skipped or "" for row in rows)
    message = f"no combination is left: {len(rows)} of {len(rows)} are skipped"
    return [Problem(skips[0].where if skips else NOWHERE, "skip", message, tuple(reasons)[:5])]


class _Maker:
    def __init__(self, blueprint: Blueprint):
        self.axes, self.skips, base = blueprint.axes, blueprint.skips, blueprint.state
        self.reader = Reader(blueprint.registry, blueprint.where)
        self._writer = Writer(self.reader)
        splits = any(not change.path and change.scope.block is None for axis in self.axes for change in axis.changes)
        self._start = base if splits else base.pruned()
        self._reached: set[int] = set()
        self._lost: dict[int, State] = {}

    def _options(self, index: Index) -> list[Option]:
        return [axis.options[i] for axis, i in zip(self.axes, index, strict=True)]

    def written(self, index: Index) -> tuple[State, frozenset[int]]:
        """The state of a place in the product, and the ids of the changes that reached nothing."""
        state, lost = self._start, []
        changes = sorted((change for o in self._options(index) for change in o.changes), key=lambda c: c.order)
        for change in changes:
            after = self._writer.one(state, change)
            if after is None:
                lost.append(change)
            else:
                state = after
        if len(self.reader.problems) > MOST_PROBLEMS:
            self.reader.raise_problems()
        ids = frozenset(map(id, lost))
        self._reached.update(id(change) for change in changes if id(change) not in ids)
        for change in lost:
            self._lost.setdefault(id(change), state)
        return state, ids

    def row(self, index: Index, state: State, lost: frozenset[int]) -> Row:
        pairs = zip(self.axes, self._options(index), strict=True)
        choices = {axis.name: option.text for axis, option in pairs if not self._rests(axis, option, state, lost)}
        if self.reader.problems:  # a value of some row cannot be read: no row will count
            return Row(index, choices, state, None, "cannot be read")
        rule = next((rule for rule in self.skips if _holds(rule, state, choices)), None)
        if rule is not None:
            return Row(index, choices, state, None, f"skip: {rule.text}")
        reader = self.reader.afresh()
        plan = resolve(state, reader)
        problems = tuple(distinct(reader.problems))
        return Row(index, choices, state, plan, "; ".join(f"{p.path}: {p.message}" for p in problems) or None, problems)

    def _rests(self, axis: Axis, option: Option, state: State, lost: frozenset[int]) -> bool:
        """Whether nothing that the axis could set is there in this row."""
        if option.changes:
            return all(id(change) in lost for change in option.changes)
        return bool(axis.changes) and not any(self._writer.one(state, change) for change in axis.changes)

    def raise_problems(self) -> None:
        for axis in self.axes:
            for change in self._unreached(axis):
                unreached_problem(change, self._lost[id(change)], self.reader)
        self.reader.raise_problems()

    def _unreached(self, axis: Axis) -> Iterator[Change]:
        resting = [change for change in axis.changes if id(change) not in self._reached]
        if axis.named:
            yield from resting
        elif axis.changes and len(resting) == len(axis.changes):
            yield resting[0]


def _holds(rule: Rule, state: State, choices: Mapping[str, str]) -> bool:
    if any(choices.get(choice.axis) != choice.option for choice in rule.choices):
        return False
    cells = {cell for cell in state.cells if state.in_use(*cell)}
    return bool(cells.intersection(*(condition.cells(state) for condition in rule.values)))


def _form(state: State) -> Hashable:
    """What makes two rows one: all fields in force, those that no layer uses left out."""
    stacks = []
    for stack in state.real_stacks:
        blocks = tuple((name, _texts(_block(state, stack, name))) for name in sorted(state.blocks))
        stacks.append((stack, _texts(_stack(state, stack)), blocks))
    return (_texts(state.model), *stacks)


def _texts(fields: Fields) -> Hashable:
    return frozenset((name, setting.text) for name, setting in fields.items())


def _stack(state: State, stack: str) -> Fields:
    fields = dict(state.stacks[stack])
    base, value = state.cells[stack, UNNAMED], fields["final_norm"].value
    if value is True or (value == "auto" and base["placement"].value in NORMS_AT_THE_END):
        fields["final_norm"] = base["norm"]
    elif value == "auto":
        fields["final_norm"] = Setting("none")
    if not fields["layers"].written:
        del fields["layers"]
    return fields


def _block(state: State, stack: str, name: str) -> Fields:
    fields = dict(state.cells[stack, name])
    if not state.in_use(stack, name):
        return {key: setting for key, setting in fields.items() if key in READ_BY_STACK}
    cross = fields.pop("cross_attention")
    if stack == DECODER:
        fields["cross_attention"] = fields["attention"] if cross.value is None else cross
    dim, heads, width = state.model["dim"].value, fields["heads"].value, fields["head_dim"].value
    if width is None and isinstance(dim, int) and isinstance(heads, int) and dim % heads == 0:
        fields["head_dim"] = Setting(dim // heads)
    return fields
