"""The positioned tree: what a blueprint says, each value with the place where it is written.

Everything between the text and the plan works on this tree, so that any error can still name file, line and column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from explorer.errors import NOWHERE, BlueprintError, Problem, Where

Scalar = bool | int | float | str | None

# Far above any blueprint (the published ones stay below 100 values and 8 levels), far below what hurts a walker.
MAX_VALUES = 100_000
MAX_DEPTH = 64

_MAX_INTEGER_BITS = 256


@dataclass(frozen=True)
class ScalarNode:
    """One value. ``quoted``: written in quotes or tagged ``!!str``, so text on purpose."""

    value: Scalar
    where: Where = NOWHERE
    quoted: bool = False


@dataclass(frozen=True)
class Entry:
    """``key: value`` of a mapping."""

    key: str
    key_where: Where
    value: Node


@dataclass(frozen=True)
class MappingNode:
    """``{key: value, ...}`` in the order of writing; no key stands twice."""

    entries: tuple[Entry, ...]
    where: Where = NOWHERE


@dataclass(frozen=True)
class SequenceNode:
    """``[item, ...]``."""

    items: tuple[Node, ...]
    where: Where = NOWHERE


Node = ScalarNode | MappingNode | SequenceNode


def child(path: str, step: str | int) -> str:
    """One step further down: ``child("norm", "eps")`` is ``norm.eps``, ``child("layers", 2)`` is ``layers[2]``."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    return f"{path}.{step}" if path else step


def plain(node: Node) -> object:
    """The node as ordinary dicts, lists and scalars, in the order of writing."""
    if isinstance(node, MappingNode):
        return {entry.key: plain(entry.value) for entry in node.entries}
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return node.value


def describe(node: Node) -> str:
    """For messages: ``a mapping``, ``a list``, ``null``, ``true``, ``the number 5`` or ``the text 'off'``."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    if isinstance(node.value, str):
        return f"the text {node.value!r}"
    return f"the number {node.value}"


def unusable(value: Scalar) -> str | None:
    """Why no blueprint can hold this scalar (inf, nan, an endless integer, half a character), or None where it can."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return f"an integer of {value.bit_length()} bits is too large"
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        return f"{value!a} holds half of a character (a lone surrogate)"
    return None


def node_of(value: object, file: str | None = None) -> Node:
    """The tree of a blueprint given from Python: dicts with text keys, lists or tuples, and scalars.

    ``file`` is the name that errors give as the place. Raises BlueprintError with everything that is no such value,
    each with its path and type, and for a value that contains itself or is too large when written out.
    """
    reader = _PythonReader(Where(file))
    node = reader.node(value, "", 1)
    if reader.problems:
        raise BlueprintError(reader.problems)
    return node


class _PythonReader:
    """Turns Python values into nodes and gathers what it cannot turn."""

    def __init__(self, where: Where):
        self.where = where
        self.problems: list[Problem] = []
        self._values = 0
        self._open: set[int] = set()  # ids of the containers that are being read

    def node(self, value: object, path: str, depth: int) -> Node:
        self._count(path, depth)
        if isinstance(value, Mapping | list | tuple):
            return self._container(value, path, depth)
        if value is not None and not isinstance(value, bool | int | float | str):
            return self._refuse(path, f"a {type(value).__name__} is no blueprint value: {_shortened(value)}")
        scalar = _exact(value)
        refusal = unusable(scalar)
        return self._refuse(path, refusal) if refusal else ScalarNode(scalar, self.where)

    def _container(
        self, value: Mapping[object, object] | list[object] | tuple[object, ...], path: str, depth: int
    ) -> Node:
        if id(value) in self._open:
            return self._refuse(path, f"this {type(value).__name__} contains itself")
        self._open.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._mapping(value, path, depth)
            items = (self.node(item, child(path, index), depth + 1) for index, item in enumerate(value))
            return SequenceNode(tuple(items), self.where)
        finally:
            self._open.discard(id(value))

    def _mapping(self, value: Mapping[object, object], path: str, depth: int) -> MappingNode:
        entries = []
        for key, item in value.items():
            if not isinstance(key, str):
                self._refuse(path, f"a key must be text, not {_shortened(key)} ({type(key).__name__})")
                continue
            key = str.__str__(key)
            refusal = unusable(key)
            if refusal:
                self._refuse(path, refusal)
                continue
            entries.append(Entry(key, self.where, self.node(item, child(path, key), depth + 1)))
        return MappingNode(tuple(entries), self.where)

    def _count(self, path: str, depth: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._refuse("", f"more than {MAX_VALUES:,} values")
            raise BlueprintError(self.problems)
        if depth > MAX_DEPTH:
            self._refuse(path, f"nested more than {MAX_DEPTH} levels deep")
            raise BlueprintError(self.problems)

    def _refuse(self, path: str, message: str) -> Node:
        self.problems.append(Problem(self.where, path, message))
        return ScalarNode(None, self.where)


def _exact(value: Scalar) -> Scalar:
    """The value as the builtin type itself: NumPy's float64 is a float and an Enum member may be a str."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _shortened(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
