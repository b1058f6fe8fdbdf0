"""States with some of their fields only: what a question reads of a state, and no more.

A question about a state (is something wrong with its heads? does a skip rule hold?) depends on few fields, and often on
little of their values. Asked of every different state with these fields only, it is asked a few times in a study of a
million rows. A field that it reads and does not name is a KeyError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD
from explorer.blueprint.state import Fields, Setting, State
from explorer.registry.chosen import Chosen

Aspect = Callable[[Setting], Hashable]
Reads = Mapping[str, Aspect]
"""The fields that a question reads, and what of their settings it can tell apart. ``layers`` need not be named for
``State.in_use`` and ``State.reads``."""

exactly: Aspect = id
"""The setting itself, with the places where it and its parameters are written."""


def value(setting: Setting) -> Hashable:
    """The value, wherever and however it is written, and whether it is."""
    return setting.text, setting.written


def presence(setting: Setting) -> Hashable:
    """Whether there is a value, and if it is a component, whether that builds anything."""
    found = setting.value
    if isinstance(found, Chosen):
        return found.is_none
    return "a value" if isinstance(found, bool | int | float | str | Mapping | tuple) else found


def only(state: State, names: Collection[str]) -> State:
    """The state with these fields only."""

    def some(fields: Fields) -> Fields:
        return {name: setting for name, setting in fields.items() if name in names}

    return replace(
        state,
        model=some(state.model),
        stacks={stack: some(fields) for stack, fields in state.stacks.items()},
        cells={cell: some(fields) for cell, fields in state.cells.items()},
    )


def merged(states: Sequence[State]) -> State:
    """One state with the fields of several that have the same stacks and blocks."""
    first = states[0]
    return replace(
        first,
        model={name: setting for state in states for name, setting in state.model.items()},
        stacks={stack: {n: s for state in states for n, s in state.stacks[stack].items()} for stack in first.stacks},
        cells={cell: {n: s for state in states for n, s in state.cells[cell].items()} for cell in first.cells},
    )


def told_apart(state: State, aspect: Aspect) -> Hashable:
    """Equal for states with the same stacks and blocks in the same order, and settings that the aspect finds equal."""
    return state.split, tuple(state.stacks), tuple(state.cells), tuple(map(aspect, settings(state)))


def settings(state: State) -> Iterator[Setting]:
    """Every setting of a state."""
    for fields in (state.model, *state.stacks.values(), *state.cells.values()):
        yield from fields.values()


_USED, _UNUSED = Setting((UNNAMED,)), Setting(())


def shortened(state: State) -> State:
    """The state with layers that say no more than whether a stack uses its unnamed block."""
    stacks = {}
    for stack, fields in state.stacks.items():
        used = {"layers": _USED if uses_unnamed(fields["layers"].value) else _UNUSED}
        stacks[stack] = {**fields, **used}
    return replace(state, stacks=stacks)


def uses_unnamed(layers: Any) -> bool:
    """Whether a layer is of the unnamed block; where `layers` cannot be read, one may be."""
    return layers is BAD or UNNAMED in layers
