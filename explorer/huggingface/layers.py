"""Layers of several kinds: the blocks that are used, and `layers` as a person would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from explorer.huggingface.components import Fields
from explorer.huggingface.reader import ConfigReader, shown

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
LONGEST_PREFIX, LONGEST_PATTERN = 8, 12


def stacked(fields: Fields, layers: Sequence[str], blocks: Mapping[str, Fields]) -> Fields:
    """Fields with `blocks` and `layers`. One kind of layer is no block: its changes are fields of the model.

    layers: the block of each layer. blocks: the changes of each to the fields. A field that all of them change stands
    in the model as most layers have it.
    """
    used = {name: blocks[name] for name in blocks if name in layers}
    if len(used) == 1:
        return {**fields, **next(iter(used.values())), "layers": len(layers)}
    most = max(used, key=layers.count)
    common = {key: value for key, value in used[most].items() if all(key in changes for changes in used.values())}
    model = {**fields, **common}
    own = {name: _beyond(changes, model) for name, changes in used.items()}
    return {**model, "blocks": own, "layers": written(layers)}


def _beyond(changes: Fields, model: Fields) -> Fields:
    return {key: value for key, value in changes.items() if key not in model or value != model[key]}


def layer_types(config: ConfigReader, count: int, default: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """What stands for the type of each layer; names: ours for each type."""
    types = config.texts("layer_types") or list(default)
    return named(config, "layer_types", types, count, names)


def named(config: ConfigReader, field: str, types: Sequence[str], count: int, names: Mapping[str, str]) -> list[str]:
    """Our names for types, one a layer. Other types and another number of them are problems."""
    if len(types) != count:
        config.problem(field, f"lists {len(types)} layers, and the model has {count}")
    for unknown in dict.fromkeys(kind for kind in types if kind not in names):
        config.problem(field, f"{shown(unknown)} is not supported", f"known: {', '.join(names)}")
    known = [names[kind] for kind in types if kind in names]
    return known or [next(iter(names.values()))] * count


def written(names: Sequence[str]) -> Any:
    """The shortest way to write the block of each layer: runs, and at most one pattern that repeats."""
    plain = _runs(names)
    shortest = min([plain, *_patterned(names)], key=lambda items: (_size(items), items is not plain))
    return shortest[0] if len(shortest) == 1 and _is_pattern(shortest[0]) else shortest


def _runs(names: Sequence[str]) -> list[Any]:
    counted = [(name, len(list(group))) for name, group in groupby(names)]
    return [name if times == 1 else {name: times} for name, times in counted]


def _patterned(names: Sequence[str]) -> Iterator[list[Any]]:
    for start in range(min(LONGEST_PREFIX, len(names))):
        for period in range(2, min(LONGEST_PATTERN, (len(names) - start) // 2) + 1):
            end = start + period
            while end < len(names) and names[end] == names[end - period]:
                end += 1
            if end - start >= 2 * period:
                pattern = {"pattern": _runs(names[start : start + period]), "count": end - start}
                yield [*_runs(names[:start]), pattern, *_runs(names[end:])]


def _size(items: Sequence[Any]) -> int:
    return sum(1 + _size(item["pattern"]) if _is_pattern(item) else 1 for item in items)


def _is_pattern(item: Any) -> bool:
    return isinstance(item, dict) and "pattern" in item
