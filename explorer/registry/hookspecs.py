"""The hooks a plugin package implements. Each takes nothing and returns ``{name in a blueprint: constructor}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

PROJECT = "explorer"  # also the entry point group
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Components = Mapping[str, Callable[..., Any] | None]


@hookspec
def register_norms() -> Components:  # type: ignore[empty-body]
    """Norms, ``norm(dim, *, ...)``; ``forward(x)`` maps (..., dim) to (..., dim)."""


@hookspec
def register_activations() -> Components:  # type: ignore[empty-body]
    """Activations, ``activation(*, ...)``; ``forward(x)``, or ``forward(gate, up)`` with two up-projections."""


@hookspec
def register_attentions() -> Components:  # type: ignore[empty-body]
    """Attentions; ``forward(x, context=None, mask=None, cache=None)`` maps (B, T, dim) to (B, T, dim)."""


@hookspec
def register_residuals() -> Components:  # type: ignore[empty-body]
    """Residual connections, subclasses of ``explorer.Residual``; one is built for each sublayer."""


@hookspec
def register_feedforwards() -> Components:  # type: ignore[empty-body]
    """Feed-forward networks; ``forward(x)`` maps (B, T, dim) to (B, T, dim)."""


@hookspec
def register_positions() -> Components:  # type: ignore[empty-body]
    """Position encodings, subclasses of ``explorer.Position``; one instance is shared by a stack."""
