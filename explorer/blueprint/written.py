"""A blueprint as one mapping that loads again and means the same: every field resolved, and what is explored."""

from collections.abc import Iterator
from typing import Any

from explorer.blueprint.axes import Axis
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.plan import UNNAMED
from explorer.blueprint.reading import plain_value
from explorer.blueprint.state import Fields, State
from explorer.blueprint.tree import plain

FOLLOWERS = ("head_dim", "cross_attention")
"""Block fields that follow another field where they are null."""


def written(blueprint: Blueprint) -> dict[str, Any]:
    """`Blueprint.resolved()`; with axes also `explore`, `skip`, `baseline`, and what follows an axis left open."""
    resolved = blueprint.resolved()
    if not blueprint.axes:
        return resolved
    for shown, stack in _stacks(resolved, blueprint.state):
        _open_stack(shown, blueprint.state, stack)
    axes = {axis.name: axis for axis in blueprint.axes}
    study: dict[str, Any] = {
        "explore": {name: _values(axis) for name, axis in axes.items()},
        "skip": [{entry.key: plain(entry.value) for entry in rule.conditions} for rule in blueprint.skips],
        "baseline": {name: _value(axes[name], at) for name, at in (blueprint.baseline.indexes or {}).items()},
    }
    return {**_without_missing(resolved), **{key: value for key, value in study.items() if value}}


def _stacks(resolved: dict[str, Any], state: State) -> Iterator[tuple[dict[str, Any], str]]:
    for stack in state.real_stacks:
        yield (resolved[stack] if stack else resolved), stack


def _open_stack(shown: dict[str, Any], state: State, stack: str) -> None:
    """Undo what resolving settled: a final norm that follows `norm`, a width that follows `heads`, and so on."""
    final = state.stacks[stack]["final_norm"].value
    if final == "auto" or final is True:
        shown["final_norm"] = final
    base = state.cells[stack, UNNAMED]
    shown.update(_followers(base, shown))
    for name, changes in shown.get("blocks", {}).items():
        own = _followers(state.cells[stack, name], shown)
        for key in FOLLOWERS:
            changes.pop(key, None)
        changes.update({key: value for key, value in own.items() if value != shown[key]})


def _followers(fields: Fields, shown: dict[str, Any]) -> dict[str, Any]:
    return {key: plain_value(fields[key].value) for key in FOLLOWERS if key in shown}


def _without_missing(resolved: dict[str, Any]) -> dict[str, Any]:
    """Without required fields that only an axis sets."""
    return {key: value for key, value in resolved.items() if not (key in ("dim", "heads") and value is None)}


def _values(axis: Axis) -> Any:
    if axis.named:
        return {option.text: plain(option.node) for option in axis.options}
    return [plain(option.node) for option in axis.options]


def _value(axis: Axis, index: int) -> Any:
    option = axis.options[index]
    return option.text if axis.named else plain(option.node)
