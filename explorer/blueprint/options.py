"""Command line options: ``--axis attention=mha,gqa:kv_heads=8:qk_norm=rmsnorm``, ``--set dim=64``, ``--workload``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, SequenceNode
from explorer.blueprint.yaml_source import parse_value
from explorer.errors import BlueprintError, UsageError, Where

_OPEN, _CLOSE, _QUOTES = "[{(", "]})", "'\""


def split(text: str, mark: str) -> list[str]:
    """The text split at ``mark`` outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth = max(0, depth - 1)
        elif letter == mark and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in [*parts, text[start:]]]


def path_and_value(option: str, text: str) -> tuple[str, str]:
    """``PATH=VALUE``.

    Raises: UsageError.
    """
    path, sign, value = text.partition("=")
    if not sign or not path.strip() or not value.strip():
        raise UsageError(f"{option} {text}: write {option} PATH=VALUE")
    return path.strip(), value.strip()


def set_entry(text: str) -> Entry:
    """One ``--set PATH=VALUE`` as an entry of a mapping.

    Raises: UsageError, BlueprintError.
    """
    path, value = path_and_value("--set", text)
    where = Where(f"--set {text}")
    return Entry(path, where, value_node(value, where))


def axis_entry(text: str) -> Entry:
    """One ``--axis PATH=A,B`` as an entry of ``explore``.

    Raises: UsageError, BlueprintError.
    """
    path, values = path_and_value("--axis", text)
    where = Where(f"--axis {text}")
    items = tuple(value_node(value, where) for value in split(values, ","))
    return Entry(path, where, SequenceNode(items, where))


def workload_node(text: str) -> MappingNode:
    """One ``--workload key=value,...``; a value in brackets multiplies.

    Raises: UsageError, BlueprintError.
    """
    where = Where(f"--workload {text}")
    return MappingNode(tuple(_pairs(text, ",", where)), where)


def _pairs(text: str, mark: str, where: Where) -> Iterator[Entry]:
    seen = set()
    for part in split(text, mark):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not key or not value:
            raise UsageError(f"{where}: '{part}' is not KEY=VALUE")
        if key in seen:
            raise UsageError(f"{where}: {key} is given twice")
        seen.add(key)
        yield Entry(key, where, value_node(value, where))


def value_node(text: str, where: Where) -> Node:
    """A value in YAML flow style or the short form ``name:key=value:...`` (``package:name:key=value``).

    Raises: UsageError, BlueprintError.
    """
    if not text:
        raise UsageError(f"{where}: a value is empty")
    name, *parts = split(text, ":")
    if not parts or text[0] in (*_OPEN, *_QUOTES):
        return _at(where, _parsed(text, where))
    if "=" not in parts[0]:
        name, *parts = f"{name}:{parts[0]}", *parts[1:]
    if not parts:
        return ScalarNode(name, where)
    params = MappingNode(tuple(_pairs(":".join(parts), ":", where)), where)
    return MappingNode((Entry(name, where, params),), where)


def _parsed(text: str, where: Where) -> Node:
    """Raises: BlueprintError at the option."""
    try:
        return parse_value(text, None)
    except BlueprintError as error:
        raise BlueprintError([replace(problem, where=where) for problem in error.problems]) from None


def _at(where: Where, node: Node) -> Node:
    """The node with the option as its place: line and column inside one word on a command line help nobody."""
    if isinstance(node, MappingNode):
        return MappingNode(tuple(Entry(entry.key, where, _at(where, entry.value)) for entry in node.entries), where)
    if isinstance(node, SequenceNode):
        return SequenceNode(tuple(_at(where, item) for item in node.items), where)
    return replace(node, where=where)
