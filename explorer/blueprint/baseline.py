"""What other rows are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.blueprint.axes import Axis, option_index
from explorer.blueprint.reading import Reader
from explorer.blueprint.tree import MappingNode, Node, ScalarNode, child, describe
from explorer.errors import did_you_mean


@dataclass(frozen=True)
class Baseline:
    """The option index of each axis that is named; None: the first row is the baseline."""

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
            lines = [did_you_mean(entry.key, by_name), f"axes: {', '.join(by_name) or 'none'}"]
            reader.problem(entry.key_where, at, "is no axis of this study", lines)
            continue
        index = option_index(by_name[entry.key], entry.value, reader, at)
        if index is not None:
            indexes[entry.key] = index
    return Baseline(indexes or None)
