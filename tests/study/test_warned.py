"""A row carries what its components warn of."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from torch import Tensor, nn

import explorer
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Component, Origin, Package, Registry

ORIGIN = Origin("lab", "lab", "1")


class Careful(nn.Module):
    def __init__(self, dim: int, *, low: bool = False):
        super().__init__()
        if low:
            warnings.warn("low is low", UserWarning, stacklevel=2)

    def forward(self, x: Tensor) -> Tensor:
        return x


class Leaky(Careful):
    leaks = "in training, everywhere"


def combinations(fields: dict[str, Any]) -> list[dict[str, Any]]:
    names = {"careful": Careful, "leaky": Leaky}
    made = tuple(Component(KINDS["norm"], name, constructor, ORIGIN) for name, constructor in names.items())
    registry = Registry((*load_registry().packages, Package(ORIGIN, made)))
    blueprint = explorer.load(
        {"dim": 16, "heads": 4, "layers": 3, "workloads": [{"tokens": 8}], **fields}, registry=registry
    )
    return explorer.run(blueprint).to_dict()["combinations"]


def test_each_row_has_its_own_warnings_once() -> None:
    rows = combinations({"explore": {"norm": ["careful", {"careful": {"low": True}}, "leaky", "rmsnorm"]}})
    assert [row["warnings"] for row in rows] == [
        [],
        ["low is low"],
        ["norm 'leaky' leaks: in training, everywhere"],
        [],
    ]


def test_a_nested_component_counts_too() -> None:
    (row,) = combinations({"attention": {"mha": {"qk_norm": "leaky"}}})
    assert row["warnings"] == ["norm 'leaky' leaks: in training, everywhere"]


def test_other_warnings_pass_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        warnings.warn("an old call", FutureWarning, stacklevel=1)
        return x

    monkeypatch.setattr(Careful, "forward", forward)
    with pytest.warns(FutureWarning, match="an old call"):
        (row,) = combinations({"norm": "careful"})
    assert row["warnings"] == []
