"""How changes reach the fields of a state, and what there is to say of those that reach nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from explorer.blueprint.changes import Change
from explorer.blueprint.fields import BLOCK, FIELDS, MODEL, STACK
from explorer.blueprint.layers import read_layers
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, Reader
from explorer.blueprint.state import Cell, Fields, Setting, State
from explorer.blueprint.tree import ScalarNode, node_of, plain
from explorer.errors import did_you_mean
from explorer.registry.chosen import Chosen
from explorer.registry.parameters import Shape


class _Unreached:
    def __repr__(self) -> str:
        return "UNREACHED"


UNREACHED: Any = _Unreached()
Key = TypeVar("Key", str, Cell)


class Writer:
    """Applies changes to states. A written value is read once, however many states it goes into."""

    def __init__(self, reader: Reader):
        self.reader = reader
        self._read: dict[tuple[int, int], tuple[Any, Any]] = {}

    def apply(self, state: State, changes: Iterable[Change]) -> tuple[State, list[Change]]:
        """The state after the changes of one mapping, and the changes that reached nothing."""
        unreached = []
        for change in changes:
            after = self.one(state, change)
            if after is None:
                unreached.append(change)
            else:
                state = after
        return state, unreached

    def one(self, state: State, change: Change) -> State | None:
        """The state after one change; None where it reaches nothing."""
        if not change.path:
            return _define(state, change)
        if change.path == ("blocks",):
            return replace(state, cells={cell: f for cell, f in state.cells.items() if cell[1] == UNNAMED})
        level = FIELDS[change.path[0]].level
        if level == MODEL:
            reached = self._assign_all({"": state.model}, change)
            return replace(state, model=reached[""]) if reached else None
        if level == STACK:
            return self._assign_stacks(state, change)
        return self._assign_cells(state, change)

    def _assign_stacks(self, state: State, change: Change) -> State | None:
        targets = {stack: f for stack, f in state.stacks.items() if change.scope.stack in (None, stack)}
        reached = self._assign_all(targets, change)
        if not any(stack in state.real_stacks for stack in reached):
            return None
        return replace(state, stacks={**state.stacks, **reached})

    def _assign_cells(self, state: State, change: Change) -> State | None:
        targets = {cell: f for cell, f in state.cells.items() if change.scope.holds(*cell)}
        reached = self._assign_all(targets, change)
        if not any(state.reads(*cell, change.path[0]) for cell in reached):
            return None
        return replace(state, cells={**state.cells, **reached})

    def _assign_all(self, targets: Mapping[Key, Fields], change: Change) -> dict[Key, Fields]:
        """The targets that the change reaches, after it. What is one setting in many before is one after."""
        name = change.path[0]
        after: dict[int, Setting | None] = {}
        for fields in targets.values():
            if id(fields[name]) not in after:
                after[id(fields[name])] = self._assign(fields[name], change)
        new = {key: after[id(fields[name])] for key, fields in targets.items()}
        return {key: {**targets[key], name: setting} for key, setting in new.items() if setting is not None}

    def _assign(self, before: Setting, change: Change) -> Setting | None:
        name, *steps = change.path
        if not steps:
            setting: Setting = self._once(change, FIELDS[name], lambda: self._setting(change))
            return setting
        if before.value is BAD:
            return before
        value = self._below(before.value, steps, change)
        return None if value is UNREACHED else Setting(value, before.where, written=True)

    def _once(self, change: Change, target: object, read: Callable[[], Any]) -> Any:
        key = id(change), id(target)
        if key not in self._read:
            self._read[key] = (change, target), read()  # both are kept, so that no other gets their ids
        return self._read[key][1]

    def _setting(self, change: Change) -> Setting:
        name = change.path[0]
        if name == "layers":
            value = read_layers(change.node, self.reader, change.text)
        else:
            value = self.reader.value(FIELDS[name].shape, change.node, change.text)
        return Setting(value, change.where, written=True)

    def _below(self, value: Any, steps: list[str], change: Change) -> Any:
        """The component with one parameter below it set; UNREACHED where there is no such parameter, or BAD."""
        if not isinstance(value, Chosen) or steps[0] not in value.component.schema.parameters:
            return UNREACHED
        parameter = value.component.schema.parameters[steps[0]]
        if len(steps) == 1:
            read = self.reader.parameter
            inner = self._once(change, parameter, lambda: read(parameter, change.node, change.text))
        else:
            inner = self._inside(value.given(steps[0]), parameter.shape, steps[1:], change)
        return inner if inner is UNREACHED or inner is BAD else value.with_param(steps[0], inner, change.node.where)

    def _inside(self, value: Any, shape: Shape, steps: list[str], change: Change) -> Any:
        if isinstance(value, Chosen):
            return self._below(value, steps, change)
        if not isinstance(value, dict) or shape.value is None or len(steps) != 1:
            return UNREACHED
        if steps[0] in shape.value.keys_of(value):
            node = node_of(shape.value.changed(value, steps[0], plain(change.node)))
            return self.reader.value(shape, replace(node, where=change.node.where), change.text)
        return UNREACHED


def _define(state: State, change: Change) -> State | None:
    """A stack written as a mapping, or a block defined (again) as a copy of its stack's unnamed one."""
    stack, block = change.scope.stack, change.scope.block
    if block is None:
        this = {stack or ""}
        null = isinstance(change.node, ScalarNode)
        return replace(state, split=state.split - this if null else state.split | this)
    if stack is None:
        fresh = {(name, block): state.cells[name, UNNAMED] for name in state.stacks}
        kept = {cell: fields for cell, fields in state.cells.items() if cell not in fresh}
        return replace(state, cells={**kept, **fresh})
    # In a stack a block is only made anew: which blocks there are is the model's.
    if block not in state.blocks or stack not in state.real_stacks:
        return None
    return replace(state, cells={**state.cells, (stack, block): state.cells[stack, UNNAMED]})


def unreached_problem(change: Change, state: State, reader: Reader) -> None:
    """Note that a path reaches nothing, and what stands there instead."""
    scope = change.scope
    if scope.stack is not None and not state.split:
        message = "the model has one stack; write `encoder: {}` and `decoder: {}` to split it"
        reader.problem(change.where, change.text, message)
    elif scope.block is not None and scope.block not in state.blocks:
        lines = [*state.no_block(scope.block), f"`blocks: {{{scope.block}: {{}}}}` at the top would define it"]
        reader.problem(change.where, change.text, f"there is no block '{scope.block}'", lines)
    else:
        reader.problem(change.where, change.text, "reaches nothing", _beside(change, state))


def _beside(change: Change, state: State) -> list[str | None]:
    name, *steps = change.path
    chosen = {v.name: v for v in _standing(change, state) if isinstance(v, Chosen)}
    lines: list[str | None] = []
    if steps and steps[0] in chosen:
        lines.append(f"a path skips component names: write {name}.{'.'.join(steps[1:]) or 'PARAMETER'}")
    for value in chosen.values():
        lines.append(_nearest(value, steps))
        lines.append(f"{name} is '{value.name}', which has: {value.component.schema.text}")
    return lines if chosen else [f"{name} has nothing below it"]


def _nearest(value: Chosen, steps: list[str]) -> str | None:
    parameters = value.component.schema.parameters
    if not steps or steps[0] not in parameters:
        return did_you_mean(steps[0], parameters) if steps else None
    inner, shape = value.given(steps[0]), parameters[steps[0]].shape
    if isinstance(inner, dict) and shape.value is not None and len(steps) > 1:
        keys = shape.value.keys_of(inner)
        guess = did_you_mean(steps[1], keys)
        return f"{steps[0]} has: {', '.join(keys)}{f'; {guess}' if guess else ''}"
    if isinstance(inner, Chosen):
        return f"{steps[0]} is '{inner.name}', which has: {inner.component.schema.text}"
    return f"{steps[0]} is {'not set' if inner is None else inner}, which has nothing below it"


def _standing(change: Change, state: State) -> list[Any]:
    """What stands at the first step of a path, where the model reads it."""
    name = change.path[0]
    level = FIELDS[name].level
    if level == BLOCK:
        inside = (cell for cell in state.cells if change.scope.holds(*cell) and state.reads(*cell, name))
        return [state.cells[cell][name].value for cell in inside]
    holders: Mapping[str, Fields] = state.stacks if level == STACK else {"": state.model}
    real = (*state.real_stacks, "") if level == MODEL else state.real_stacks
    return [fields[name].value for key, fields in holders.items() if key in real]
