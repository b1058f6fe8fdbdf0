"""Makers: what a constructor gets for a nested component, and annotates to say so.

``qk_norm: Norm | None = None`` right of ``*`` lets a blueprint write any installed norm there; the constructor calls
``qk_norm(head_dim)`` for each module that it wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn


class Norm(Protocol):
    """Makes a norm over the last axis of width ``dim``."""

    def __call__(self, dim: int) -> nn.Module: ...


class Activation(Protocol):
    """Makes an activation; ``inputs`` is 1, or 2 where its forward takes (gate, up)."""

    @property
    def inputs(self) -> int: ...

    def __call__(self) -> nn.Module: ...


KIND_OF: Mapping[Any, str] = MappingProxyType({Norm: "norm", Activation: "activation"})
