"""What a blueprint explores: axes of values or of named options."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from explorer.blueprint.changes import Change, Scope, flatten, owners
from explorer.blueprint.fields import FIELDS, HEADER_FIELDS, PREFIXES, STUDY_FIELDS
from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode, child, describe, plain
from explorer.errors import NOWHERE, Where, did_you_mean
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

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Those of all options."""
        return tuple(change for option in self.options for change in option.changes)


def is_path(name: str) -> bool:
    """Whether an axis of this name sets a path; any other name stands for named options."""
    return name.split(".")[0] in (*FIELDS, *PREFIXES)


def short_text(node: Node) -> str:
    """The short form: ``gqa:kv_heads=8`` for a component with parameters, else YAML flow style."""
    if isinstance(node, MappingNode) and len(node.entries) == 1:
        (entry,) = node.entries
        if isinstance(entry.value, MappingNode):
            return ":".join([entry.key, *(f"{e.key}={written_text(plain(e.value))}" for e in entry.value.entries)])
    return written_text(plain(node))


def read_axes(node: Node, reader: Reader, path: str = "explore") -> tuple[Axis, ...]:
    """The axes of an ``explore`` mapping."""
    if isinstance(node, ScalarNode) and node.value is None:
        return ()
    if not isinstance(node, MappingNode):
        reader.problem(node.where, path, f"must be a mapping from axes to their values, not {describe(node)}")
        return ()
    return tuple(axis for entry in node.entries if (axis := read_axis(entry, reader, child(path, entry.key))))


def read_axis(entry: Entry, reader: Reader, path: str) -> Axis | None:
    """One axis: a list of values of a path, or named options with any other name."""
    items = entry.value
    if isinstance(items, SequenceNode) and is_path(entry.key):
        options = list(_values(entry, items, reader))
    elif isinstance(items, MappingNode) and not is_path(entry.key) and entry.key not in (*STUDY_FIELDS, *HEADER_FIELDS):
        options = [_named(item, reader, child(path, item.key)) for item in items.entries]
    else:
        _not_an_axis(entry, reader, path)
        return None
    if not options:
        reader.problem(items.where, path, "the axis is empty")
        return None
    texts = Counter(option.text for option in options)
    for text in (text for text, times in texts.items() if times > 1):
        reader.problem(items.where, path, f"{text} stands twice on this axis")
    return Axis(entry.key, tuple(options), isinstance(items, MappingNode), entry.key_where)


def _not_an_axis(entry: Entry, reader: Reader, path: str) -> None:
    name, node = entry.key.split(".")[0], entry.value
    if is_path(entry.key):
        reader.problem(node.where, path, f"must be a list of values, not {describe(node)}")
    elif name in (*STUDY_FIELDS, *HEADER_FIELDS):
        reader.problem(entry.key_where, path, f"'{name}' stands at the top of a file only and cannot be an axis")
    elif isinstance(node, SequenceNode):
        wanted = "named options, which may have any name, are a mapping of mappings"
        lines = [*owners(name, reader), did_you_mean(name, [*FIELDS, *PREFIXES]), wanted]
        reader.problem(entry.key_where, path, f"a list is for a path, and there is no field '{name}'", lines)
    else:
        message = f"must be a mapping of named options, each a mapping of changes, not {describe(node)}"
        reader.problem(node.where, path, message, [did_you_mean(name, [*FIELDS, *PREFIXES])])


def _values(axis: Entry, items: SequenceNode, reader: Reader) -> Iterator[Option]:
    for item in items.items:
        if isinstance(item, ScalarNode) and item.value == AS_WRITTEN:
            yield Option(AS_WRITTEN, (), item)
        else:
            yield Option(short_text(item), flatten([Entry(axis.key, item.where, item)], reader), item)


def _named(entry: Entry, reader: Reader, path: str) -> Option:
    null = isinstance(entry.value, ScalarNode) and entry.value.value is None
    if isinstance(entry.value, MappingNode):
        return Option(entry.key, flatten(entry.value.entries, reader), entry.value)
    if not null:
        reader.problem(entry.value.where, path, f"a named option is a mapping of changes, not {describe(entry.value)}")
    return Option(entry.key, (), MappingNode((), entry.value.where))


def check_axes(axes: Sequence[Axis], reader: Reader) -> None:
    """Note where two axes set one path."""
    owners: dict[tuple[Scope, tuple[str, ...]], str] = {}
    told: set[tuple[str, str, str]] = set()
    for axis in axes:
        for change in axis.changes:
            owner = owners.setdefault((change.scope, change.path), axis.name)
            if owner != axis.name and (change.text, owner, axis.name) not in told:
                told.add((change.text, owner, axis.name))
                reader.problem(change.where, change.text, f"is set by two axes, {owner} and {axis.name}")


def with_axis(axes: Iterable[Axis], axis: Axis) -> tuple[Axis, ...]:
    """The axes with one more; an axis of the same name is replaced where it stands."""
    kept = list(axes)
    for index, other in enumerate(kept):
        if other.name == axis.name:
            return (*kept[:index], axis, *kept[index + 1 :])
    return (*kept, axis)


def narrowed(axis: Axis, entry: Entry, reader: Reader, path: str) -> Axis:
    """Named options reduced to those that a list names, in its order."""
    items = entry.value.items if isinstance(entry.value, SequenceNode) else ()
    found = [option_index(axis, item, reader, path) for item in items]
    options = [axis.options[index] for index in dict.fromkeys(found) if index is not None]
    return Axis(axis.name, tuple(options) or axis.options, axis.named, axis.where)


def option_index(axis: Axis, node: Node, reader: Reader, path: str) -> int | None:
    """The place of a value on an axis: by its text, its value, or the bare name of its component."""
    text, written = short_text(node), plain(node)
    texts = [option.text for option in axis.options]
    found = [i for i, option in enumerate(texts) if option == text]
    if not axis.named:
        found = found or [i for i, option in enumerate(axis.options) if _same(plain(option.node), written)]
        found = found or [i for i, option in enumerate(texts) if option.split(":")[0] == text]
    if len(found) == 1:
        return found[0]
    fault = f"{text} is not on this axis" if not found else f"{text} could be several of its values"
    close = None if found else did_you_mean(text, texts)
    reader.problem(node.where, path, fault, [close, f"values: {', '.join(texts)}"])
    return None


def _same(one: object, other: object) -> bool:
    """Equal, where null and none are the same and true is no number."""
    nothing = (None, "none")
    return (one in nothing and other in nothing) or (type(one) is type(other) and one == other) or _numbers(one, other)


def _numbers(one: object, other: object) -> bool:
    return {type(one), type(other)} == {int, float} and one == other


def plain_axes(axes: Iterable[Axis]) -> dict[str, Any]:
    """As in the JSON of a result: short texts by axis."""
    return {axis.name: [option.text for option in axis.options] for axis in axes}


_NAME = re.compile(r"[^\W\d]")
_PLAIN_WORDS = frozenset({"none", "null", "true", "false", "auto", AS_WRITTEN})


def spoken(axis: str, text: str) -> str:
    """A value as a label: a component's name speaks for itself, a plain value needs the field it is for."""
    if axis.partition(".")[0] in PREFIXES:
        return f"{axis}={text}"  # of one stack or block: the field alone could be that of another
    plain_value = "." in axis or text in _PLAIN_WORDS or not _NAME.match(text)
    return f"{axis.rpartition('.')[2]}={text}" if plain_value else text
