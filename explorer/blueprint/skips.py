"""Rows to leave out: ``skip: [{residual: deepnorm, placement: pre}]`` holds where all holds in some block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.blueprint.axes import Axis, option_index, short_text
from explorer.blueprint.changes import Scope, path_of
from explorer.blueprint.fields import FIELDS, MODEL, STACK
from explorer.blueprint.layers import read_layers
from explorer.blueprint.owners import readable
from explorer.blueprint.reading import BAD, Reader
from explorer.blueprint.resolved import FOLLOWING, depends_on, in_force, stack_in_force
from explorer.blueprint.state import Cell, Fields, State
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode, child, describe
from explorer.errors import Where, did_you_mean
from explorer.registry.chosen import Chosen
from explorer.registry.parameters import Parameter, Shape

ABSENT: Any = object()


@dataclass(frozen=True)
class Choice:
    """Holds where an axis of named options has this option."""

    axis: str
    option: str


@dataclass(frozen=True)
class Condition:
    """Holds in a block where a path has one of these values (one text may be read as several)."""

    scope: Scope
    path: tuple[str, ...]
    wanted: tuple[Any, ...]

    @property
    def reads(self) -> frozenset[str]:
        """The fields that decide whether it holds, besides the layers that say which blocks are in use."""
        # A parameter that is not written may be the block's field of that name.
        return frozenset().union(*(depends_on(name) for name in self.path if name in FIELDS))

    def cells(self, state: State) -> frozenset[Cell]:
        """The blocks in use where it holds."""
        return frozenset(cell for cell in cells_in_use(state) if self._holds(state, cell))

    def _holds(self, state: State, cell: Cell) -> bool:
        """Whether it holds in a block, with its stack and the model around it."""
        if not self.scope.holds(*cell):
            return False
        name, *steps = self.path
        values = [_below(fields, name, steps) for fields in _fields(state, cell, name)]
        return any(value is not ABSENT and _matches(value, wanted) for value in values for wanted in self.wanted)


@dataclass(frozen=True)
class Rule:
    """Conditions as written, and as read; ``text`` is what a skipped row shows."""

    conditions: tuple[Entry, ...]
    choices: tuple[Choice, ...]
    values: tuple[Condition, ...]
    where: Where

    @property
    def text(self) -> str:
        return ", ".join(f"{entry.key}: {short_text(entry.value)}" for entry in self.conditions)


def cells_in_use(state: State) -> frozenset[Cell]:
    """A rule holds where all its conditions hold in one of these blocks."""
    return frozenset(cell for cell in state.cells if state.in_use(*cell))


def read_skips(node: Node | None, axes: Sequence[Axis], state: State, reader: Reader) -> tuple[Rule, ...]:
    """The rules of a ``skip`` list."""
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return ()
    if not isinstance(node, SequenceNode):
        reader.problem(node.where, "skip", f"must be a list of mappings, not {describe(node)}")
        return ()
    rules = []
    for index, item in enumerate(node.items):
        path = child("skip", index)
        if not isinstance(item, MappingNode) or not item.entries:
            empty = isinstance(item, MappingNode)
            message = f"must be a mapping of conditions, not {'an empty one' if empty else describe(item)}"
            reader.problem(item.where, path, message)
            continue
        rules.append(_RuleReader(axes, state, reader).rule(item, path))
    return tuple(rules)


@dataclass(frozen=True)
class _RuleReader:
    """Reads one rule. What can never hold would leave in rows that its writer thinks are skipped: it is refused."""

    axes: Sequence[Axis]
    state: State
    reader: Reader

    def rule(self, node: MappingNode, path: str) -> Rule:
        read = [self._condition(entry, child(path, entry.key)) for entry in node.entries]
        choices = tuple(condition for condition in read if isinstance(condition, Choice))
        values = tuple(condition for condition in read if isinstance(condition, Condition))
        return Rule(node.entries, choices, values, node.where)

    def _condition(self, entry: Entry, path: str) -> Choice | Condition | None:
        named = {axis.name: axis for axis in self.axes if axis.named}
        if entry.key in named:
            index = option_index(named[entry.key], entry.value, self.reader, path)
            return None if index is None else Choice(entry.key, named[entry.key].options[index].text)
        found = self._path(entry, path, named)
        if found is None:
            return None
        scope, (name, *steps) = found
        wanted = self._wanted(name, steps, entry, path)
        return Condition(scope, (name, *steps), wanted) if wanted else None

    def _path(self, entry: Entry, path: str, named: Mapping[str, Axis]) -> tuple[Scope, tuple[str, ...]] | None:
        trial = self.reader.afresh()
        found = path_of(entry.key, entry.key_where, trial)
        for problem in trial.problems:
            options = f"axes of named options: {', '.join(named) or 'none'}"
            lines = [did_you_mean(entry.key, named), *problem.hints, options]
            self.reader.problem(problem.where, path, problem.message, lines)
        if found is not None:
            self._check_scope(found[0], entry.key_where, path)
        return found

    def _check_scope(self, scope: Scope, where: Where, path: str) -> None:
        """Note a stack or block that neither the blueprint nor an option of an axis has."""
        written = [change.scope for axis in self.axes for change in axis.changes]
        blocks = {*self.state.blocks[1:], *(other.block for other in written if other.block)}
        if scope.stack and not self.state.split and not any(other.stack for other in written):
            self.reader.problem(where, path, "the model has one stack")
        if scope.block and scope.block not in blocks:
            lines = [did_you_mean(scope.block, blocks), f"blocks: {', '.join(sorted(blocks)) or 'none are defined'}"]
            self.reader.problem(where, path, f"there is no block '{scope.block}'", lines)

    def _wanted(self, name: str, steps: list[str], entry: Entry, path: str) -> tuple[Any, ...]:
        field = FIELDS[name]
        if name == "layers" and not steps:
            value = read_layers(entry.value, self.reader, path)
            return () if value is BAD else (value,)
        if not steps:
            return self._read([Parameter(name, field.shape)], entry, path)
        found = list(_parameters(field.shape, steps, self.reader))
        if not found:
            whole = _names(field.shape, self.reader)
            lines = [did_you_mean(steps[0], whole), f"below {name} there are: {', '.join(whole) or 'no parameters'}"]
            self.reader.problem(entry.key_where, path, f"no {name} has a parameter '{'.'.join(steps)}'", lines)
            return ()
        return self._read(found, entry, path)

    def _read(self, parameters: Sequence[Parameter], entry: Entry, path: str) -> tuple[Any, ...]:
        """What the written value is for each of the parameters that can have it."""
        readers = [self.reader.afresh() for _ in parameters]
        read = [r.parameter(p, entry.value, path) for r, p in zip(readers, parameters, strict=True)]
        if all(value is BAD for value in read):
            self.reader.adopt(readers[0].problems)
        return tuple(value for value in read if value is not BAD)


def _parameters(shape: Shape, steps: list[str], reader: Reader) -> Iterator[Parameter]:
    """The parameters at these steps below a shape, of every component that may stand there."""
    if shape.value is not None and len(steps) == 1 and steps[0] in shape.value.keys:
        yield Parameter(steps[0], Shape(leaf=Any))
    for component in readable(reader.components(shape.kind)) if shape.kind else ():
        parameter = component.schema.parameters.get(steps[0])
        if parameter is not None and len(steps) == 1:
            yield parameter
        elif parameter is not None:
            yield from _parameters(parameter.shape, steps[1:], reader)


def _names(shape: Shape, reader: Reader) -> list[str]:
    found = readable(reader.components(shape.kind)) if shape.kind else ()
    return sorted({name for component in found for name in component.schema.parameters})


def _fields(state: State, cell: Cell, name: str) -> Iterator[Fields]:
    """The fields around a block as written, and for a field that follows another, in force."""
    level = FIELDS[name].level
    if level == MODEL:
        yield state.model
    elif level == STACK:
        yield from (state.stacks[cell[0]], stack_in_force(state, cell[0]))
    else:
        yield state.cells[cell]
        if name in FOLLOWING:
            yield in_force(state, *cell)


def _below(fields: Fields, name: str, steps: list[str]) -> Any:
    value = fields[name].value if name in fields else ABSENT
    for step in steps:
        if isinstance(value, Chosen) and step in value.component.schema.parameters:
            blocks = value.component.schema.parameters[step].menu and step not in value.params
            value = fields[step].value if blocks and step in fields else value.given(step)
        elif isinstance(value, Mapping) and step in (inner := _skipping_a_name(value)):
            value = inner[step]
        else:
            return ABSENT
    return value


def _skipping_a_name(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the keys of a structured value stand in: itself, or the mapping below the name of its form."""
    inner = next(iter(value.values()), None)
    return inner if len(value) == 1 and isinstance(inner, Mapping) else value


def _matches(value: Any, wanted: Any) -> bool:
    """Equal; a component matches another with at least the parameters that are written for that one."""
    if isinstance(wanted, Chosen):
        if wanted.component.name == "none" and value in (None, "none"):
            return True
        same = isinstance(value, Chosen) and value.component is wanted.component
        return same and all(_matches(value.given(name), wanted.params[name]) for name in wanted.places)
    if wanted is None and isinstance(value, Chosen):
        return value.component.name == "none"
    return isinstance(value, bool) is isinstance(wanted, bool) and bool(value == wanted)
