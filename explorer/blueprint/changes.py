"""Every mapping is changes: ``path: value``, wide before narrow, short paths before long.

A mapping (a file, an option of an axis, ``--set``) is flattened to a sorted tuple of Change. ``encoder.``, ``decoder.``
and ``blocks.NAME.`` in front of a path, or the mapping of that name around it, narrow its scope.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.blueprint.fields import (
    BLOCK,
    FIELDS,
    HEADER_FIELDS,
    MODEL,
    PREFIXES,
    STACK,
    STUDY_FIELDS,
)
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, child, describe
from explorer.errors import Where, did_you_mean

RESERVED_BLOCKS = frozenset({UNNAMED, "pattern"})


@dataclass(frozen=True)
class Scope:
    """What a change is narrowed to; None: everywhere."""

    stack: str | None = None
    block: str | None = None

    @property
    def narrowness(self) -> int:
        return (self.stack is not None) + 2 * (self.block is not None)

    def path(self, path: str = "") -> str:
        parts = [self.stack, f"blocks.{self.block}" if self.block else None, path]
        return ".".join(part for part in parts if part)


@dataclass(frozen=True)
class Change:
    """One ``path: value``. An empty path defines the stack or block of its scope; ("blocks",) drops all blocks first."""

    scope: Scope
    path: tuple[str, ...]
    node: Node
    where: Where

    @property
    def text(self) -> str:
        return self.scope.path(".".join(self.path))

    @property
    def order(self) -> tuple[int, int]:
        # Which stacks and blocks there are must stand before anything inside them changes.
        structural = not self.path or self.path == ("blocks",)
        return (-1, self.scope.narrowness) if structural else (self.scope.narrowness, len(self.path))


def flatten(entries: Iterable[Entry], reader: Reader) -> tuple[Change, ...]:
    """The changes a mapping makes, in the order in which they apply; problems go to the reader."""
    changes = list(_flatten(entries, Scope(), reader))
    seen: dict[tuple[Scope, tuple[str, ...]], Change] = {}
    for change in changes:
        first = seen.setdefault((change.scope, change.path), change)
        if first is not change:
            reader.problem(change.where, change.text, f"is set twice, first at {first.where}")
    return tuple(sorted(changes, key=lambda change: change.order))


def _flatten(entries: Iterable[Entry], scope: Scope, reader: Reader) -> Iterable[Change]:
    for entry in entries:
        yield from _one(entry, scope, reader)


def _one(entry: Entry, scope: Scope, reader: Reader) -> Iterable[Change]:
    inner, rest = _narrowed(scope, entry.key.split("."))
    if inner is None or not all(rest):
        reader.problem(entry.key_where, scope.path(entry.key), "is no path", [_PATHS])
    elif not rest:
        yield from _scope_mapping(entry, scope, inner, reader)
    elif rest == ["blocks"]:
        yield from _all_blocks(entry, inner, reader)
    elif _known(entry, inner, rest, reader):
        yield Change(inner, tuple(rest), entry.value, entry.key_where)


_PATHS = "a path is FIELD, FIELD.PARAMETER, or one of them behind encoder., decoder. or blocks.NAME."


def _narrowed(scope: Scope, steps: list[str]) -> tuple[Scope | None, list[str]]:
    """The scope that the first steps of a path name, and the steps left over."""
    if steps[0] in ("encoder", "decoder"):
        if scope.stack is not None or scope.block is not None:
            return None, steps
        return _narrowed(Scope(steps[0], scope.block), steps[1:]) if steps[1:] else (Scope(steps[0]), [])
    if steps[0] == "blocks" and len(steps) > 1:
        return (None, steps) if scope.block is not None else (Scope(scope.stack, steps[1]), steps[2:])
    return scope, steps


def _scope_mapping(entry: Entry, outer: Scope, inner: Scope, reader: Reader) -> Iterable[Change]:
    """``encoder: {...}`` or ``blocks.NAME: {...}``: the definition itself, then the changes inside."""
    if inner.block is not None and not _block_name(entry, inner, reader):
        return
    null = isinstance(entry.value, ScalarNode) and entry.value.value is None
    if not isinstance(entry.value, MappingNode) and not null:
        reader.problem(entry.value.where, inner.path(), f"must be a mapping of changes, not {describe(entry.value)}")
        return
    # In a stack, a block's mapping changes what the block is there; the block itself is the model's.
    if inner.block is None or inner.stack is None:
        yield Change(inner, (), entry.value, entry.key_where)
    if isinstance(entry.value, MappingNode):
        yield from _flatten(entry.value.entries, inner, reader)


def _all_blocks(entry: Entry, scope: Scope, reader: Reader) -> Iterable[Change]:
    if scope.block is not None:
        reader.problem(entry.key_where, scope.path("blocks"), "a block holds no blocks")
        return
    if scope.stack is None:
        yield Change(scope, ("blocks",), entry.value, entry.key_where)
    if isinstance(entry.value, ScalarNode) and entry.value.value is None:
        return
    if not isinstance(entry.value, MappingNode):
        reader.problem(entry.value.where, scope.path("blocks"), f"must be a mapping of blocks, not {describe(entry.value)}")
        return
    for block in entry.value.entries:
        yield from _scope_mapping(block, scope, Scope(scope.stack, block.key), reader)


def _block_name(entry: Entry, scope: Scope, reader: Reader) -> bool:
    name = scope.block or ""
    if name in RESERVED_BLOCKS or not name.replace("_", "a").replace("-", "a").isalnum():
        lines = [f"{name!r} already has a meaning" if name in RESERVED_BLOCKS else "use letters, digits, '_' and '-'"]
        reader.problem(entry.key_where, scope.path(), "is no name for a block", lines)
        return False
    return True


def _known(entry: Entry, scope: Scope, path: list[str], reader: Reader) -> bool:
    name, full = path[0], scope.path(".".join(path))
    if name in STUDY_FIELDS or name in HEADER_FIELDS:
        reader.problem(entry.key_where, full, f"'{name}' stands at the top of a file only and cannot be changed from here")
        return False
    field = FIELDS.get(name)
    if field is None:
        names = [*FIELDS, *PREFIXES, *STUDY_FIELDS, *HEADER_FIELDS]
        lines = [did_you_mean(name, names) or _owner_hint(name, reader), f"fields: {', '.join(FIELDS)}"]
        reader.problem(entry.key_where, full, f"there is no field '{name}'", lines)
        return False
    narrowed = {MODEL: scope != Scope(), STACK: scope.block is not None, BLOCK: False}[field.level]
    if narrowed:
        reader.problem(entry.key_where, full, f"'{name}' belongs to the {field.level}, not to {scope.path()}")
    return not narrowed


def _owner_hint(name: str, reader: Reader) -> str | None:
    """Where a parameter written as a field belongs: ``kv_heads`` is one of attention 'gqa'."""
    for kind in ("attention", "feedforward", "norm", "position", "residual", "activation"):
        for component in reader.registry.components(kind):
            if name in component.schema.parameters:
                return f"'{name}' is a parameter of {kind} '{component.name}': write `{kind}.{name}`"
    return None


def set_change(path: str, node: Node, where: Where, reader: Reader) -> tuple[Change, ...]:
    """One ``--set`` or axis value as changes."""
    return flatten([Entry(path, where, node)], reader)


__all__ = ["Change", "Scope", "child", "flatten", "set_change"]
