"""What the options of all axes make of every field, each field for itself.

A change reaches one field, so a field varies along the axes whose options change it, and along no others. Two things
are common to all fields: which stacks and blocks there are, and, because a change that no layer feels is lost, whether
a layer is of the unnamed block at the moment when the change applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from explorer.blueprint.axes import Axis, Option
from explorer.blueprint.changes import Change, Scope
from explorer.blueprint.fields import FIELDS
from explorer.blueprint.grid import Grid
from explorer.blueprint.layers import read_layers
from explorer.blueprint.partial import exactly, only, told_apart, uses_unnamed
from explorer.blueprint.state import State
from explorer.blueprint.varied import Varied
from explorer.blueprint.writing import Writer

MOST_PROBLEMS = 50
STRUCTURE = ""  # stands for a field: which stacks and blocks there are

Changes = tuple[Change, ...]


@dataclass(frozen=True)
class Columns:
    """What the axes make of a state.

    fields: for each field, states that hold no other. lost: for each field (STRUCTURE too) the ids of the changes of
    it that reach nothing. reached: the ids of all changes that reach something somewhere.
    """

    fields: Mapping[str, Varied[State]]
    lost: Mapping[str, Varied[frozenset[int]]]
    reached: frozenset[int]


def columns_of(base: State, grid: Grid, writer: Writer) -> Columns:
    """Every field over the product of the axes. What cannot be read is noted in the writer's reader.

    Raises: BlueprintError once that is very much.
    """
    splits = any(not change.path and change.scope.block is None for axis in grid.axes for change in axis.changes)
    return _Maker(grid, writer).columns(base if splits else base.pruned())


def field_of(change: Change) -> str:
    """The field that a change reaches, or STRUCTURE."""
    return change.path[0] if change.path and change.path != ("blocks",) else STRUCTURE


@dataclass
class _Step:
    """A state after some changes, those of them that reached nothing, and the steps that follow from it."""

    state: State
    lost: Changes = ()
    following: dict[int, _Step] = field(default_factory=dict)

    def after(self, change: Change, writer: Writer) -> _Step:
        """The state after one more change; what begins alike is shared."""
        step = self.following.get(id(change))
        if step is None:
            state = writer.one(self.state, change)
            step = _Step(self.state, (*self.lost, change)) if state is None else _Step(state, self.lost)
            self.following[id(change)] = step
        return step


class _Maker:
    """Makes the columns, and notes which changes have reached anything so far."""

    def __init__(self, grid: Grid, writer: Writer):
        self.grid, self.writer = grid, writer
        self._reached: set[int] = set()
        self._switches: Mapping[int, Change] = {}

    def columns(self, base: State) -> Columns:
        steps = {STRUCTURE: self._steps(STRUCTURE, Varied.constant(base, self.grid.shape))}
        start = Varied.map(lambda step: step.state, steps[STRUCTURE], key=_exact)
        self._switches = self._switching(start.values)
        steps |= {name: self._steps(name, start) for name in FIELDS}
        fields = {
            name: Varied.map(lambda s, name=name: only(s.state, {name}), steps[name], key=_exact) for name in FIELDS
        }
        lost = {name: Varied.map(lambda s, name=name: _lost(name, s), step) for name, step in steps.items()}
        return Columns(fields, lost, frozenset(self._reached))

    def _steps(self, name: str, start: Varied[State]) -> Varied[_Step]:
        """The last step of each way in which the options of the axes change one field."""
        firsts: dict[int, _Step] = {}

        def last(state: State, *of_axes: Changes) -> _Step:
            part = state if name == STRUCTURE else only(state, {name, "layers"})
            step = firsts.setdefault(id(state), _Step(part))
            changes = sorted(chain.from_iterable(of_axes), key=lambda change: change.order)
            for change in changes:
                step = step.after(change, self.writer)
            self._note(changes, step)
            return step

        options = [self.grid.along(a, lambda o: self._chosen(name, o), key=_ids) for a in self._axes(name)]
        return Varied.map(last, start, *options, key=lambda step: (_exact(step.state), _ids(step.lost)))

    def _note(self, changes: Iterable[Change], last: _Step) -> None:
        lost = set(_ids(last.lost))
        self._reached.update(id(change) for change in changes if id(change) not in lost)
        if len(self.writer.reader.problems) > MOST_PROBLEMS:
            self.writer.reader.raise_problems()

    def _axes(self, name: str) -> list[Axis]:
        """The axes with a change of the field, or of what decides whether such a change is lost."""
        wanted = {name, "layers"} if self._switches else {name}
        return [axis for axis in self.grid.axes if not wanted.isdisjoint(map(field_of, axis.changes))]

    def _chosen(self, name: str, option: Option) -> Changes:
        """The changes of an option that reach a field, and those that switch the unnamed block on or off."""
        switches = self._switches if name != "layers" else {}
        found = (change if field_of(change) == name else switches.get(id(change)) for change in option.changes)
        return tuple(change for change in found if change is not None)

    def _switching(self, starts: Iterable[State]) -> dict[int, Change]:
        """For each change of `layers` one that is as good: of its axis and scope, and as to the unnamed block alike.

        None where every stack always has a layer of the unnamed block.
        """
        alike: dict[tuple[str, Scope, bool], Change] = {}
        switches = {}
        for axis in self.grid.axes:
            for change in (change for change in axis.changes if change.path == ("layers",)):
                value = read_layers(change.node, self.writer.reader.afresh(), change.text)
                switches[id(change)] = alike.setdefault((axis.name, change.scope, uses_unnamed(value)), change)
        written = (fields["layers"].value for start in starts for fields in start.stacks.values())
        always = all(map(uses_unnamed, written)) and all(used for _, _, used in alike)
        return {} if always else switches


def _lost(name: str, step: _Step) -> frozenset[int]:
    return frozenset(_ids(change for change in step.lost if field_of(change) == name))


def _ids(changes: Iterable[Change]) -> tuple[int, ...]:
    return tuple(map(id, changes))


def _exact(state: State) -> object:
    return told_apart(state, exactly)
