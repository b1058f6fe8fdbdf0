"""Blueprints for toy models, with made-up components beside the installed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import explorer
from explorer.assembly.build import build
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Component, Origin, Package, Registry

TOY = {"dim": 16, "heads": 4, "norm": "layernorm", "activation": "gelu", "feedforward": {"dense": {"hidden": 32}}}

Components = Mapping[str, Mapping[str, Any]]


def toy_blueprint(changes: Mapping[str, Any], components: Components | None = None) -> Any:
    origin = Origin("toy_package", "toy", "1.0")
    offered = [
        Component(KINDS[kind], name, constructor, origin)
        for kind, table in (components or {}).items()
        for name, constructor in table.items()
    ]
    registry = Registry((*load_registry().packages, Package(origin, tuple(offered))))
    return explorer.load({**TOY, **changes}, registry=registry)


@pytest.fixture
def load() -> Callable[..., Any]:
    """`load(components={kind: {name: constructor}}, **fields)`: a toy blueprint."""
    return lambda components=None, **fields: toy_blueprint(fields, components)


@pytest.fixture
def make() -> Callable[..., Any]:
    """`make(scope="model", components=..., **fields)`: a toy module on the CPU in evaluation mode."""

    def made(scope: str = "model", name: str | None = None, components: Any = None, **fields: Any) -> Any:
        return build(toy_blueprint(fields, components), scope, name, device="cpu").eval()  # type: ignore[arg-type]

    return made
