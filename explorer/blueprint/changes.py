"""Every mapping is changes: ``path: value``, wide before narrow, short paths before long.

A mapping (a file, an option of an axis, ``--set``) is flattened to a sorted tuple of Change. ``encoder.``, ``decoder.``
and ``blocks.NAME.`` in front of a path, or the mapping of that name around it, narrow its scope.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from explorer.blueprint.fields import BLOCK, FIELDS, HEADER_FIELDS, MODEL, PREFIXES, STACK, STUDY_FIELDS, Field
from explorer.blueprint.owners import as_parameter
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import Entry, MappingNode, Node, ScalarNode, describe
from explorer.errors import Where, did_you_mean

MOST_BLOCKS = 1000  # every block has its own value of every field
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

    def holds(self, stack: str, block: str) -> bool:
        """Whether this block of this stack is inside."""
        return self.stack in (None, stack) and self.block in (None, block)


EVERYWHERE = Scope()


@dataclass(frozen=True)
class Change:
    """One ``path: value``. An empty path defines the stack or block of its scope, ("blocks",) drops all blocks."""

    scope: Scope
    path: tuple[str, ...]
    node: Node
    where: Where

    @property
    def text(self) -> str:
        return self.scope.path(".".join(self.path))

    @cached_property
    def order(self) -> tuple[int, int]:
        # Which stacks and blocks there are must stand before anything inside them changes.
        structural = not self.path or self.path == ("blocks",)
        return (-1, self.scope.narrowness) if structural else (self.scope.narrowness, len(self.path))


def flatten(entries: Iterable[Entry], reader: Reader) -> tuple[Change, ...]:
    """The changes a mapping makes, in the order in which they apply; problems go to the reader."""
    changes = list(_flatten(entries, EVERYWHERE, reader))
    blocks = {change.scope.block for change in changes if change.scope.block}
    if len(blocks) > MOST_BLOCKS:
        reader.problem(changes[0].where, "blocks", f"{len(blocks):,} blocks are more than {MOST_BLOCKS:,}")
        return ()
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
        reader.problem(entry.key_where, scope.path(entry.key), "is no path", [_no_path(entry.key, scope)])
    elif not rest:
        yield from _scope_mapping(entry, inner, reader)
    elif rest == ["blocks"]:
        yield from _all_blocks(entry, inner, reader)
    elif known(inner, rest, entry.key_where, reader):
        yield Change(inner, tuple(rest), entry.value, entry.key_where)


def path_of(key: str, where: Where, reader: Reader) -> tuple[Scope, tuple[str, ...]] | None:
    """Scope and steps of a path to a field or below one; None where it is none, with the problem noted."""
    scope, rest = _narrowed(EVERYWHERE, key.split("."))
    if scope is None or not rest or not all(rest) or rest == ["blocks"]:
        reader.problem(where, key, "is no path", [_no_path(key, EVERYWHERE)])
        return None
    return (scope, tuple(rest)) if known(scope, rest, where, reader) else None


def _no_path(key: str, scope: Scope) -> str:
    if scope != EVERYWHERE and key.split(".")[0] in PREFIXES:
        return f"{scope.path()} holds no stack or block; write `{key.split('.')[0]}` at the top"
    return "a path is FIELD, FIELD.PARAMETER, or one of them behind encoder., decoder. or blocks.NAME."


def _narrowed(scope: Scope, steps: list[str]) -> tuple[Scope | None, list[str]]:
    """The scope that the first steps of a path name, and the steps left over."""
    if steps[0] in ("encoder", "decoder"):
        if scope != EVERYWHERE:
            return None, steps
        return _narrowed(Scope(steps[0]), steps[1:]) if steps[1:] else (Scope(steps[0]), [])
    if steps[0] == "blocks" and len(steps) > 1:
        return (None, steps) if scope.block is not None else (Scope(scope.stack, steps[1]), steps[2:])
    return scope, steps


def _scope_mapping(entry: Entry, inner: Scope, reader: Reader) -> Iterable[Change]:
    """``encoder: {...}`` or ``blocks.NAME: {...}``: the definition itself, then the changes inside."""
    if inner.block is not None and not _block_name(entry, inner, reader):
        return
    null = isinstance(entry.value, ScalarNode) and entry.value.value is None
    if not isinstance(entry.value, MappingNode) and not null:
        reader.problem(entry.value.where, inner.path(), f"must be a mapping of changes, not {describe(entry.value)}")
        return
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
        message = f"must be a mapping of blocks, not {describe(entry.value)}"
        reader.problem(entry.value.where, scope.path("blocks"), message)
        return
    for block in entry.value.entries:
        yield from _scope_mapping(block, Scope(scope.stack, block.key), reader)


def _block_name(entry: Entry, scope: Scope, reader: Reader) -> bool:
    name = scope.block or ""
    if name in RESERVED_BLOCKS or not name.replace("_", "a").replace("-", "a").isalnum():
        lines = [f"{name!r} already has a meaning" if name in RESERVED_BLOCKS else "use letters, digits, '_' and '-'"]
        reader.problem(entry.key_where, scope.path(), "is no name for a block", lines)
        return False
    return True


def known(scope: Scope, path: list[str], where: Where, reader: Reader) -> bool:
    """Whether the path begins with a field that its scope has; else that is noted."""
    name, full = path[0], scope.path(".".join(path))
    if name in STUDY_FIELDS or name in HEADER_FIELDS:
        message = f"'{name}' stands at the top of a file only and cannot be changed from here"
        reader.problem(where, full, message, ["use --workload" if name == "workloads" else None])
        return False
    field = FIELDS.get(name)
    if field is None:
        names = [*FIELDS, *PREFIXES, *STUDY_FIELDS, *HEADER_FIELDS]
        lines: list[str | None] = [*owners(name, reader)] or [did_you_mean(name, names)]
        reader.problem(where, full, f"there is no field '{name}'", [*lines, f"fields: {', '.join(FIELDS)}"])
        return False
    owner = _owner_elsewhere(field, scope)
    if owner:
        reader.problem(where, full, f"'{name}' belongs to the {owner}, not to {scope.path()}")
    return owner is None


def _owner_elsewhere(field: Field, scope: Scope) -> str | None:
    """Who has the field, where that is not the scope."""
    if {MODEL: scope != EVERYWHERE, STACK: scope.block is not None, BLOCK: False}[field.level]:
        return field.level
    return None if scope.stack is None or scope.stack in field.stacks else field.stacks[-1]


def owners(name: str, reader: Reader) -> list[str]:
    """Where a parameter or component written as a field belongs: ``kv_heads`` is one of attention 'gqa'."""
    kinds = [field.name for field in FIELDS.values() if field.shape.kind == field.name]
    found = (as_parameter(name, reader.components(kind), kind) for kind in kinds)
    return [line for line in found if line]
