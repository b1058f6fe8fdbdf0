"""Where an axis rests: where nothing that it could set is there, so that its options are all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from explorer.blueprint.axes import Axis, Option
from explorer.blueprint.changes import Change, Scope
from explorer.blueprint.columns import STRUCTURE, Columns, field_of
from explorer.blueprint.partial import exactly
from explorer.blueprint.reading import Reader
from explorer.blueprint.space import Space
from explorer.blueprint.state import State
from explorer.blueprint.varied import Varied
from explorer.blueprint.writing import Writer, unreached_problem


def resting(space: Space, columns: Columns, writer: Writer) -> Mapping[str, Varied[bool]]:
    """For each axis where it rests: where all changes of its option are lost, or those of all options would be."""
    return {axis.name: _rests(axis, space, columns, writer) for axis in space.grid.axes}


def _rests(axis: Axis, space: Space, columns: Columns, writer: Writer) -> Varied[bool]:
    if not axis.changes:
        return Varied.constant(False, space.grid.shape)
    own = frozenset(map(id, axis.changes))
    lost = [columns.lost[name] for name in dict.fromkeys(map(field_of, axis.changes))]
    lost_here = [Varied.map(lambda ids: ids & own, each) for each in lost]

    def rests(option: Option, within: bool, *ids: frozenset[int]) -> bool:
        gone = frozenset().union(*ids)
        return all(id(change) in gone for change in option.changes) if option.changes else within

    options = space.grid.along(axis, lambda option: option, key=id)
    return Varied.map(rests, options, _reaches_nothing(axis, space, writer), *lost_here)


def _reaches_nothing(axis: Axis, space: Space, writer: Writer) -> Varied[bool]:
    """Whether no change of the axis would reach anything where it has an option without changes."""
    empty = next((index for index, option in enumerate(axis.options) if not option.changes), None)
    if empty is None:
        return Varied.constant(False, space.grid.shape)
    there = space.fixed(space.grid.dims[axis.name], empty) if axis.name in space.grid.dims else space
    # Whether a change reaches anything depends on its path, not on what it writes there.
    ways: dict[str, dict[tuple[Scope, tuple[str, ...]], Change]] = {}
    for change in axis.changes:
        ways.setdefault(field_of(change), {}).setdefault((change.scope, change.path), change)
    found = [_none_reaches(tuple(changes.values()), name, there, writer) for name, changes in ways.items()]
    return Varied.map(lambda *none: all(none), *found)


def _none_reaches(changes: Sequence[Change], name: str, space: Space, writer: Writer) -> Varied[bool]:
    def none(state: State) -> bool:
        return not any(writer.one(state, change) for change in changes)

    return space.map(none, {} if name == STRUCTURE else {name: exactly})


def note_unreached(space: Space, reached: frozenset[int], reader: Reader) -> None:
    """Note the axes that reach nothing in any row, and what stands there instead in the first."""
    for axis in space.grid.axes:
        for change in _unreached(axis, reached):
            option = next(i for i, option in enumerate(axis.options) if any(c is change for c in option.changes))
            unreached_problem(change, space.state(space.grid.first_with(axis, option)), reader)


def _unreached(axis: Axis, reached: frozenset[int]) -> Iterator[Change]:
    """Of an axis of values one change, where all rest everywhere; of named options each that never reaches."""
    resting = [change for change in axis.changes if id(change) not in reached]
    if axis.named:
        yield from resting
    elif axis.changes and len(resting) == len(axis.changes):
        yield resting[0]
