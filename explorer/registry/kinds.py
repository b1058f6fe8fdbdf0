"""The kinds of component, and what a block gives to each: the menu left of ``*``.

Axes everywhere: B batch, T query positions, S key positions, D dim, F hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True)
class Kind:
    """One kind of component.

    menu: names a constructor may take left of ``*``.
    written: menu names that picking also opens to the blueprint, with the type of what may be written.
    optional: whether a component may be registered as None (nothing is built).
    """

    name: str
    hook: str
    menu: tuple[str, ...]
    forward: str
    written: Mapping[str, Any] = field(default_factory=dict)
    optional: bool = False


def _table(*kinds: Kind) -> Mapping[str, Kind]:
    return MappingProxyType({kind.name: kind for kind in kinds})


KINDS = _table(
    Kind("norm", "register_norms", ("dim",), "(x) -> x, (..., dim)"),
    Kind("activation", "register_activations", (), "(x), or (gate, up)"),
    Kind(
        "attention",
        "register_attentions",
        ("dim", "heads", "head_dim", "causal", "window", "bias", "position", "dropout", "site"),
        "(x, context=None, mask=None, cache=None) -> (B, T, dim)",
        written={"bias": bool | Literal["qkv", "out"]},
        optional=True,
    ),
    Kind("residual", "register_residuals", ("dim", "site"), "enter, read, write, leave"),
    Kind(
        "feedforward",
        "register_feedforwards",
        ("dim", "activation", "bias", "dropout", "vocab", "site"),
        "(x) -> (B, T, dim)",
        written={"bias": bool},
        optional=True,
    ),
    Kind("position", "register_positions", ("dim", "heads", "head_dim", "causal"), "embed, rotate, bias"),
)
