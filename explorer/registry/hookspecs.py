"""The hooks a plugin package implements. Each takes nothing and returns a mapping.

Those of components return ``{name in a blueprint: constructor}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

PROJECT = "explorer"  # also the entry point group
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Components = Mapping[str, Callable[..., Any] | None]
CostRules = Mapping[str, Callable[[Mapping[str, Any], Any], Any]]
HardwareEntries = Mapping[str, Mapping[str, Any]]


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


@hookspec
def register_cost_rules() -> CostRules:  # type: ignore[empty-body]
    """What one call of an operator of the package's own costs, ``{"namespace::name": rule}``.

    ``rule(given, out)`` gets the arguments by the names of the operator's schema (those left at their defaults are not
    there) and the result, and returns an ``explorer.OpCost``. It reads shapes and dtypes only: on meta there are no
    values. A backward is an operator with a rule of its own, or made of operators of torch. Without a rule an operator
    is listed as not counted. A rule for an operator that the explorer counts itself, or that two packages have a rule
    for, is refused where the operator is met.
    """


@hookspec
def register_hardware() -> HardwareEntries:  # type: ignore[empty-body]
    """Devices for predictions, ``{name: entry}``, each entry as one of ``explorer/prediction/hardware.yaml``.

    An entry is a mapping: ``match`` (what drivers call the device), dense peaks in TFLOP/s (``bf16``, ``fp16``,
    ``tf32``, ``fp32``, ``fp8``), ``bw`` in GB/s, ``mem`` in GB, ``llc`` in MiB, ``src`` (where the numbers stand), and
    what of ``achievable``, ``achievable_src``, ``host`` and ``note`` is known. It is checked where the table is read. A
    name or alias that the table already has is refused; only a user's own file overrides.
    """
