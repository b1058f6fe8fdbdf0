"""The values of all fields in every stack and block, and how a change reaches them.

Every (stack, block) pair has its own full set of block fields, also of the stacks and blocks that a blueprint may turn
out not to have. So a wide change is one assignment everywhere, and the last mapping to write a field wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from explorer.blueprint.changes import Change, Scope
from explorer.blueprint.fields import BLOCK, DECODER, ENCODER, FIELDS, MISSING, MODEL, STACK, STACKS, at_level
from explorer.blueprint.layers import read_layers
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, Reader
from explorer.blueprint.tree import ScalarNode, node_of, plain
from explorer.errors import NOWHERE, Where, did_you_mean
from explorer.registry.chosen import Chosen
from explorer.registry.parameters import Shape


@dataclass(frozen=True)
class Setting:
    """A field's value and where it was written (NOWHERE: a default)."""

    value: Any
    where: Where = field(default=NOWHERE, compare=False)
    written: bool = False


Fields = Mapping[str, Setting]
Cell = tuple[str, str]  # stack, block


@dataclass(frozen=True)
class State:
    """All fields; ``split`` holds the stacks that are written as mappings (either makes an encoder-decoder)."""

    model: Fields
    stacks: Mapping[str, Fields]
    cells: Mapping[Cell, Fields]
    split: frozenset[str] = frozenset()

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of blocks in order of definition, the unnamed one first."""
        return tuple(block for stack, block in self.cells if stack == "")

    @property
    def real_stacks(self) -> tuple[str, ...]:
        return (ENCODER, DECODER) if self.split else ("",)


def default_state(reader: Reader) -> State:
    """The state before any file."""
    def fields(level: str, stack: str = "") -> dict[str, Setting]:
        return {f.name: Setting(_default(f.name, stack, reader)) for f in at_level(level)}

    return State(
        model=fields(MODEL),
        stacks={stack: fields(STACK, stack) for stack in STACKS},
        cells={(stack, UNNAMED): fields(BLOCK, stack) for stack in STACKS},
    )


def _default(name: str, stack: str, reader: Reader) -> Any:
    this = FIELDS[name]
    if this.default is MISSING:
        return MISSING
    if name == "causal" and stack == ENCODER:
        return False
    if name == "layers":
        return (UNNAMED,)
    # A default that is not installed is only missed where the blueprint leaves it in force: `resolve` says so.
    return Reader(reader.registry).value(this.shape, node_of(this.default), name)


def apply(state: State, changes: Iterable[Change], reader: Reader) -> tuple[State, list[Change]]:
    """The state after the changes of one mapping, and the changes that reached nothing."""
    unreached = []
    for change in changes:
        after = _apply_one(state, change, reader)
        if after is None:
            unreached.append(change)
        else:
            state = after
    return state, unreached


def _apply_one(state: State, change: Change, reader: Reader) -> State | None:
    if not change.path:
        return _define(state, change)
    if change.path == ("blocks",):
        return replace(state, cells={cell: f for cell, f in state.cells.items() if cell[1] == UNNAMED})
    level = FIELDS[change.path[0]].level
    if level == MODEL:
        fields = _assign(state.model, change, reader)
        return None if fields is None else replace(state, model=fields)
    if level == STACK:
        targets: dict[Any, Fields] = {s: f for s, f in state.stacks.items() if change.scope.stack in (None, s)}
        reached = _assign_all(state, targets, change, reader)
        return None if reached is None else replace(state, stacks={**state.stacks, **reached})
    cells = {cell: f for cell, f in state.cells.items() if _inside(cell, change.scope)}
    reached = _assign_all(state, cells, change, reader)
    return None if reached is None else replace(state, cells={**state.cells, **reached})


def _define(state: State, change: Change) -> State:
    """A stack written as a mapping, or a block defined (again) as a copy of its stack's unnamed one."""
    if change.scope.block is not None:
        fresh = {(stack, change.scope.block): state.cells[stack, UNNAMED] for stack in STACKS}
        kept = {cell: fields for cell, fields in state.cells.items() if cell not in fresh}
        return replace(state, cells={**kept, **fresh})
    stack = {change.scope.stack or ""}
    null = isinstance(change.node, ScalarNode)
    return replace(state, split=state.split - stack if null else state.split | stack)


def _inside(cell: Cell, scope: Scope) -> bool:
    return scope.stack in (None, cell[0]) and scope.block in (None, cell[1])


def _assign_all(state: State, targets: Mapping[Any, Fields], change: Change, reader: Reader) -> dict[Any, Fields] | None:
    """The targets after the change; None where it reaches none of those that the model really has."""
    reached = {key: fields for key, before in targets.items() if (fields := _assign(before, change, reader)) is not None}
    real = any((key if isinstance(key, str) else key[0]) in state.real_stacks for key in reached)
    return reached if real else None


def _assign(fields: Fields, change: Change, reader: Reader) -> Fields | None:
    name, *steps = change.path
    before = fields[name].value
    if not steps:
        value = _read(name, change, reader)
    else:
        value = _set_below(before, steps, change, reader)
    if value is UNREACHED:
        return None
    if value is BAD:
        return fields
    return {**fields, name: Setting(value, change.where if not steps else fields[name].where, written=True)}


class _Unreached:
    pass


UNREACHED: Any = _Unreached()


def _read(name: str, change: Change, reader: Reader) -> Any:
    if name == "layers":
        return read_layers(change.node, reader, change.text)
    return reader.value(FIELDS[name].shape, change.node, change.text)


def _set_below(value: Any, steps: list[str], change: Change, reader: Reader) -> Any:
    """The component with one parameter below it set; UNREACHED where there is no such parameter."""
    if not isinstance(value, Chosen) or steps[0] not in value.component.schema.parameters:
        return UNREACHED
    parameter = value.component.schema.parameters[steps[0]]
    if len(steps) == 1:
        inner = reader.parameter(parameter, change.node, change.text)
    else:
        inner = _set_inside(value.given(steps[0]), parameter.shape, steps[1:], change, reader)
    return inner if inner is UNREACHED or inner is BAD else value.with_param(steps[0], inner, change.node.where)


def _set_inside(value: Any, shape: Shape, steps: list[str], change: Change, reader: Reader) -> Any:
    if isinstance(value, Chosen):
        return _set_below(value, steps, change, reader)
    if isinstance(value, dict) and shape.value is not None and steps[0] in shape.value.keys and len(steps) == 1:
        node = node_of({**value, steps[0]: plain(change.node)})
        return reader.value(shape, replace(node, where=change.node.where), change.text)
    return UNREACHED


def unreached_problem(change: Change, state: State, reader: Reader) -> None:
    """Note that a path reaches nothing, and what stands there instead."""
    scope, (name, *steps) = change.scope, change.path or ("",)
    if scope.block is not None and scope.block not in state.blocks:
        lines = [did_you_mean(scope.block, state.blocks), f"blocks: {', '.join(state.blocks[1:]) or 'none'}"]
        reader.problem(change.where, change.text, f"there is no block '{scope.block}'", lines)
        return
    if scope.stack is not None and not state.split:
        reader.problem(change.where, change.text, "the model has one stack; write encoder and decoder to split it")
        return
    lines = _beside(name, steps, state, scope)
    reader.problem(change.where, change.text, "reaches nothing", lines)


def _beside(name: str, steps: list[str], state: State, scope: Scope) -> list[str | None]:
    found = [fields[name].value for cell, fields in state.cells.items() if name in fields and _inside(cell, scope)]
    found += [fields[name].value for fields in [*state.stacks.values(), state.model] if name in fields]
    chosen = {v.component.name: v.component for v in found if isinstance(v, Chosen)}
    lines: list[str | None] = []
    if steps and steps[0] in chosen:
        lines.append(f"a path skips component names: write {name}.{'.'.join(steps[1:]) or 'PARAMETER'}")
    for component in chosen.values():
        lines.append(did_you_mean(steps[0], component.schema.parameters) if steps else None)
        lines.append(f"{name} is '{component.name}', which has: {component.schema.text}")
    if not chosen:
        lines.append(f"{name} has nothing below it")
    return lines
