"""Rows to leave out: ``skip: [{residual: deepnorm, placement: pre}]`` holds where all holds in some block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from explorer.blueprint.axes import Axis, short_text
from explorer.blueprint.fields import BLOCK, FIELDS, MODEL, PREFIXES
from explorer.blueprint.layers import written_layers
from explorer.blueprint.reading import Reader
from explorer.blueprint.resolve import in_use
from explorer.blueprint.state import State
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode, child, describe, plain
from explorer.errors import Where, did_you_mean
from explorer.registry.chosen import Chosen
from explorer.registry.kinds import KINDS

ABSENT: Any = object()


@dataclass(frozen=True)
class Rule:
    """Conditions, each a path or an axis with a value; ``text`` is what a skipped row shows."""

    conditions: tuple[Entry, ...]
    where: Where

    @property
    def text(self) -> str:
        return ", ".join(f"{entry.key}: {short_text(entry.value)}" for entry in self.conditions)

    def holds(self, state: State, choices: Mapping[str, str]) -> bool:
        """Whether all conditions hold in some block of the row."""
        open_conditions = [e for e in self.conditions if e.key not in choices or e.key.split(".")[0] in FIELDS]
        chosen = [e for e in self.conditions if e not in open_conditions]
        if any(choices[entry.key] != short_text(entry.value) for entry in chosen):
            return False
        return any(all(_holds(state, cell, entry) for entry in open_conditions) for cell in _cells(state))


def read_skips(node: Node | None, axes: tuple[Axis, ...], reader: Reader) -> tuple[Rule, ...]:
    """The rules of a ``skip`` list."""
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return ()
    if not isinstance(node, SequenceNode):
        reader.problem(node.where, "skip", f"must be a list of mappings, not {describe(node)}")
        return ()
    names = {axis.name for axis in axes}
    rules = []
    for index, item in enumerate(node.items):
        path = child("skip", index)
        if not isinstance(item, MappingNode) or not item.entries:
            reader.problem(item.where, path, f"must be a mapping of conditions, not {describe(item)}")
            continue
        for entry in item.entries:
            _check(entry, names, reader, child(path, entry.key))
        rules.append(Rule(item.entries, item.where))
    return tuple(rules)


def _check(entry: Entry, axes: set[str], reader: Reader, path: str) -> None:
    """A rule that can never hold hides rows that its writer thinks are skipped: typing errors are refused."""
    if entry.key in axes:
        return
    _, _, name, *steps = _split(entry.key)
    if name not in FIELDS:
        lines = [did_you_mean(name, [*FIELDS, *axes, *PREFIXES]), f"axes: {', '.join(sorted(axes)) or 'none'}"]
        reader.problem(entry.key_where, path, f"there is no field or axis '{name}'", lines)
        return
    shape = FIELDS[name].shape
    if not steps and name != "layers":
        reader.value(shape, entry.value, path)
    elif steps and shape.kind in KINDS:
        known = {p for c in reader.registry.components(shape.kind) for p in c.schema.parameters}
        if steps[0] not in known:
            reader.problem(entry.key_where, path, f"no {shape.kind} has a parameter '{steps[0]}'", [did_you_mean(steps[0], known)])


def _split(key: str) -> tuple[str | None, ...]:
    """stack, block, field, then the steps below it."""
    stack = block = None
    steps = key.split(".")
    if steps[0] in ("encoder", "decoder"):
        stack, *steps = steps
    if steps and steps[0] == "blocks" and len(steps) > 1:
        _, block, *steps = steps
    return (stack, block, *(steps or [""]))


def _cells(state: State) -> Iterator[tuple[str, str]]:
    for stack, block in state.cells:
        if stack in state.real_stacks and in_use(state, stack, block):
            yield stack, block


def _holds(state: State, cell: tuple[str, str], entry: Entry) -> bool:
    stack, block, name, *steps = _split(entry.key)
    if stack not in (None, cell[0]) or block not in (None, cell[1]):
        return False
    level = FIELDS[name or ""].level
    fields = state.model if level == MODEL else state.cells[cell] if level == BLOCK else state.stacks[cell[0]]
    return _matches(_below(fields[name or ""].value, steps), entry.value)


def _below(value: Any, steps: list[Any]) -> Any:
    for step in steps:
        if isinstance(value, Chosen) and step in value.component.schema.parameters:
            value = value.given(step)
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            return ABSENT
    return value


def _matches(value: Any, node: Node) -> bool:
    if isinstance(value, Chosen):
        return _matches_component(value, node)
    written = plain(node)
    if isinstance(value, tuple):
        return bool(written_layers(value) == written)
    return type(value) is type(written) and value == written or _equal_numbers(value, written)


def _equal_numbers(value: Any, written: Any) -> bool:
    numbers = isinstance(value, int | float) and isinstance(written, int | float)
    return numbers and not isinstance(value, bool) and not isinstance(written, bool) and value == written


def _matches_component(chosen: Chosen, node: Node) -> bool:
    if isinstance(node, ScalarNode):
        names = (chosen.component.name, f"{chosen.component.package}:{chosen.component.name}")
        return (node.value or "none") in names
    if not isinstance(node, MappingNode) or len(node.entries) != 1:
        return False
    (entry,) = node.entries
    inner = entry.value.entries if isinstance(entry.value, MappingNode) else ()
    named = _matches_component(chosen, ScalarNode(entry.key))
    return named and all(_matches(_below(chosen, [e.key]), e.value) for e in inner)
