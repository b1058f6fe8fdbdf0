"""``layers: [first, {kda: 2}, {pattern: [{local: 5}, global], count: 34}]``: the block of each layer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import BAD, Reader, number_hint
from explorer.blueprint.tree import MappingNode, Node, ScalarNode, SequenceNode, child, describe

MOST_LAYERS = 100_000  # forty times the deepest published stack (DeepNet, 2,500 sublayers)

_FORMS = "layers is a count, NAME, {NAME: times}, {pattern: items, count: layers}, or a list of such items"


def read_layers(node: Node, reader: Reader, path: str) -> Any:
    """The block name of every layer, or BAD."""
    before = len(reader.problems)
    names = tuple(itertools.islice(_expand(node, reader, path, top=True), MOST_LAYERS + 1))
    if len(names) > MOST_LAYERS:
        return reader.problem(node.where, path, f"more than {MOST_LAYERS:,} layers")
    if not names and len(reader.problems) == before:
        return reader.problem(node.where, path, "a stack needs at least one layer")
    return BAD if len(reader.problems) > before else names


def _expand(node: Node, reader: Reader, path: str, top: bool = False) -> Iterable[str]:
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from _expand(item, reader, child(path, index))
    elif isinstance(node, MappingNode):
        yield from _mapping(node, reader, path)
    elif isinstance(node.value, str):
        yield node.value
    elif top and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield from itertools.repeat(UNNAMED, _count(node, reader, path))
    else:
        reader.problem(node.where, path, f"{describe(node)} is no layer", [number_hint(node), _FORMS])


def _mapping(node: MappingNode, reader: Reader, path: str) -> Iterable[str]:
    keys = {entry.key: entry.value for entry in node.entries}
    if set(keys) == {"pattern", "count"}:
        items = tuple(itertools.islice(_expand(keys["pattern"], reader, child(path, "pattern")), MOST_LAYERS + 1))
        count = _count(keys["count"], reader, child(path, "count"))
        if not items and count:
            reader.problem(node.where, child(path, "pattern"), "the pattern is empty")
            return
        yield from itertools.islice(itertools.cycle(items), count)
    elif len(keys) == 1 and "pattern" not in keys:
        ((name, times),) = keys.items()
        yield from itertools.repeat(name, _count(times, reader, child(path, name)))
    else:
        reader.problem(node.where, path, f"a mapping with the keys {', '.join(keys) or '(none)'} is no layer", [_FORMS])


def _count(node: Node, reader: Reader, path: str) -> int:
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_LAYERS:
        message = f"must be an int from 1 to {MOST_LAYERS:,}, not {describe(node)}"
        reader.problem(node.where, path, message, [number_hint(node)])
        return 0
    return value


def written_layers(names: tuple[str, ...]) -> Any:
    """The shortest plain form: a count for unnamed layers, else runs of names."""
    if set(names) == {UNNAMED}:
        return len(names)
    runs = [(name, len(list(group))) for name, group in itertools.groupby(names)]
    return [{name: n} if n > 1 else name for name, n in runs]
