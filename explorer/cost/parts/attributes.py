"""What modules keep in their attributes from one call to the next: a table that the first call makes, a counter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from explorer.cost.parts.part import Part

_Before = tuple[nn.Module, dict[str, Any], list[tuple[Any, Any]]]


@contextmanager
def as_built(part: Part) -> Iterator[None]:
    """Inside, the modules of a part may keep what they like; afterwards their attributes are as before.

    So every look finds a part as its constructor left it, whatever was looked at earlier. Lists, dicts and sets that
    are attributes have what they had; objects inside of those, and of other attributes, may have changed.
    """
    before = [_noted(module) for module in _modules(part)]
    try:
        yield
    finally:
        for one in before:
            _restore(*one)


def _modules(part: Part) -> Iterator[nn.Module]:
    for top in part.modules:
        yield from top.modules()
    yield from part.switched


def _noted(module: nn.Module) -> _Before:
    own = dict(vars(module))
    containers = [(value, value.copy()) for value in own.values() if isinstance(value, dict | list | set)]
    return module, own, containers


def _restore(module: nn.Module, own: dict[str, Any], containers: list[tuple[Any, Any]]) -> None:
    vars(module).clear()
    vars(module).update(own)
    for container, held in containers:
        container.clear()
        (container.extend if isinstance(container, list) else container.update)(held)
