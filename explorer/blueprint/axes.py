"""What a blueprint explores: axes of values or named options, rows to skip, the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.blueprint.changes import Change, Scope, flatten, set_change
from explorer.blueprint.fields import FIELDS, PREFIXES
from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode, child, describe, plain
from explorer.errors import NOWHERE, Where
from explorer.registry.parameters import written_text

AS_WRITTEN = "as_written"


@dataclass(frozen=True)
class Option:
    """One value of an axis: what it changes, and its text in tables and on the command line."""

    text: str
    changes: tuple[Change, ...]
    node: Node


@dataclass(frozen=True)
class Axis:
    """One axis: ``name`` is a path, or the name of a set of named options."""

    name: str
    options: tuple[Option, ...]
    named: bool
    where: Where = NOWHERE


def short_text(node: Node) -> str:
    """The short form: ``gqa:kv_heads=8`` for a component with parameters, else YAML flow style."""
    if isinstance(node, MappingNode) and len(node.entries) == 1:
        (entry,) = node.entries
        if isinstance(entry.value, MappingNode):
            return ":".join([entry.key, *(f"{e.key}={_inner_text(e.value)}" for e in entry.value.entries)])
    return written_text(plain(node))


def _inner_text(node: Node) -> str:
    return written_text(plain(node))


def read_axes(node: Node, reader: Reader, path: str = "explore") -> tuple[Axis, ...]:
    """The axes of an ``explore`` mapping."""
    if isinstance(node, ScalarNode) and node.value is None:
        return ()
    if not isinstance(node, MappingNode):
        reader.problem(node.where, path, f"must be a mapping from axes to their values, not {describe(node)}")
        return ()
    axes = tuple(axis for entry in node.entries if (axis := read_axis(entry, reader, child(path, entry.key))))
    check_axes(axes, reader)
    return axes


def read_axis(entry: Entry, reader: Reader, path: str) -> Axis | None:
    """One axis: a list of values of a path, or named options with any other name."""
    is_path = entry.key.split(".")[0] in (*FIELDS, *PREFIXES)
    items = entry.value
    if isinstance(items, SequenceNode):
        options = list(_values(entry.key, items, reader))
    elif isinstance(items, MappingNode) and not is_path:
        options = [_named(item, reader, child(path, item.key)) for item in items.entries]
    else:
        wanted = "a list of values" if is_path else "a mapping of named options, each a mapping of changes"
        reader.problem(entry.value.where, path, f"must be {wanted}, not {describe(items)}")
        return None
    if not options:
        reader.problem(entry.value.where, path, "the axis is empty")
        return None
    for text in sorted({o.text for o in options if [p.text for p in options].count(o.text) > 1}):
        reader.problem(entry.value.where, path, f"{text} stands twice on this axis")
    return Axis(entry.key, tuple(options), isinstance(items, MappingNode), entry.key_where)


def _values(name: str, items: SequenceNode, reader: Reader) -> Iterator[Option]:
    for item in items.items:
        if isinstance(item, ScalarNode) and item.value == AS_WRITTEN:
            yield Option(AS_WRITTEN, (), item)
        else:
            yield Option(short_text(item), set_change(name, item, item.where, reader), item)


def _named(entry: Entry, reader: Reader, path: str) -> Option:
    null = isinstance(entry.value, ScalarNode) and entry.value.value is None
    if null:
        return Option(entry.key, (), entry.value)
    if not isinstance(entry.value, MappingNode):
        reader.problem(entry.value.where, path, f"a named option is a mapping of changes, not {describe(entry.value)}")
        return Option(entry.key, (), entry.value)
    return Option(entry.key, flatten(entry.value.entries, reader), entry.value)


def check_axes(axes: Sequence[Axis], reader: Reader) -> None:
    """Note where two axes set one path."""
    owners: dict[tuple[Scope, tuple[str, ...]], str] = {}
    for axis in axes:
        for change in (change for option in axis.options for change in option.changes):
            owner = owners.setdefault((change.scope, change.path), axis.name)
            if owner != axis.name:
                reader.problem(change.where, change.text, f"is set by two axes, {owner} and {axis.name}")


def with_axis(axes: Iterable[Axis], axis: Axis) -> tuple[Axis, ...]:
    """The axes with one more; an axis of the same name is replaced where it stands."""
    kept = list(axes)
    for index, other in enumerate(kept):
        if other.name == axis.name:
            return (*kept[:index], axis, *kept[index + 1 :])
    return (*kept, axis)


@dataclass(frozen=True)
class Baseline:
    """What other rows are compared with: the option index of each axis named; None: the first row."""

    indexes: dict[str, int] | None = None


def read_baseline(node: Node | None, axes: Sequence[Axis], reader: Reader, path: str = "baseline") -> Baseline:
    """The baseline that a mapping from axes to values names."""
    if node is None or (isinstance(node, ScalarNode) and node.value is None):
        return Baseline()
    if not isinstance(node, MappingNode):
        reader.problem(node.where, path, f"must be a mapping from axes to values, not {describe(node)}")
        return Baseline()
    by_name = {axis.name: axis for axis in axes}
    indexes: dict[str, int] = {}
    for entry in node.entries:
        at = child(path, entry.key)
        if entry.key not in by_name:
            reader.problem(entry.key_where, at, "is no axis of this study", [f"axes: {', '.join(by_name) or 'none'}"])
            continue
        index = _option_index(by_name[entry.key], entry.value, reader, at)
        if index is not None:
            indexes[entry.key] = index
    return Baseline(indexes)


def _option_index(axis: Axis, node: Node, reader: Reader, path: str) -> int | None:
    text = short_text(node)
    texts = [option.text for option in axis.options]
    found = [i for i, option in enumerate(texts) if option == text]
    found = found or [i for i, option in enumerate(texts) if option.split(":")[0] == text]
    if len(found) == 1:
        return found[0]
    fault = f"{text} is not on this axis" if not found else f"{text} could be several of its values"
    reader.problem(node.where, path, fault, [f"values: {', '.join(texts)}"])
    return None


def plain_axes(axes: Iterable[Axis]) -> dict[str, Any]:
    """As in the JSON of a result: short texts by axis."""
    return {axis.name: [option.text for option in axis.options] for axis in axes}
