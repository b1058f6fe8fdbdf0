"""Architecture explorer: what a swapped Transformer component changes in parameters, FLOPs, KV cache and latency.

The names below are what users and plugin packages import. They load on first use, so that ``import explorer`` (and
``explorer --help``) stays free of torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explorer.assembly.attend import attend as attend
    from explorer.assembly.build import build as build
    from explorer.assembly.cache import Cache as Cache
    from explorer.assembly.cache import CacheView as CacheView
    from explorer.assembly.grouped import grouped as grouped
    from explorer.assembly.index_scores import index_scores as index_scores
    from explorer.assembly.position import Position as Position
    from explorer.assembly.precision import KeepsFloat32 as KeepsFloat32
    from explorer.assembly.precision import wide_dtype as wide_dtype
    from explorer.assembly.precision import without_autocast as without_autocast
    from explorer.assembly.residual import Residual as Residual
    from explorer.assembly.visible import Visible as Visible
    from explorer.blueprint.blueprint import Blueprint as Blueprint
    from explorer.blueprint.load import load as load
    from explorer.cost.crosscheck.lengths import Lengths as Lengths
    from explorer.cost.ledger.rows import OpCost as OpCost
    from explorer.errors import BlueprintError as BlueprintError
    from explorer.errors import ExplorerError as ExplorerError
    from explorer.errors import MeasureError as MeasureError
    from explorer.errors import PluginError as PluginError
    from explorer.errors import RefusedError as RefusedError
    from explorer.errors import UsageError as UsageError
    from explorer.huggingface.weights.load import load_weights as load_weights
    from explorer.registry.hookspecs import hookimpl as hookimpl
    from explorer.registry.makers import Activation as Activation
    from explorer.registry.makers import Norm as Norm
    from explorer.registry.sites import Site as Site
    from explorer.registry.values import Value as Value
    from explorer.registry.values import Width as Width
    from explorer.study.result import Result as Result
    from explorer.study.run import run as run

_HOMES = {
    "explorer.assembly.attend": ("attend",),
    "explorer.assembly.build": ("build",),
    "explorer.assembly.cache": ("Cache", "CacheView"),
    "explorer.assembly.grouped": ("grouped",),
    "explorer.assembly.index_scores": ("index_scores",),
    "explorer.assembly.position": ("Position",),
    "explorer.assembly.precision": ("KeepsFloat32", "wide_dtype", "without_autocast"),
    "explorer.assembly.residual": ("Residual",),
    "explorer.assembly.visible": ("Visible",),
    "explorer.blueprint.blueprint": ("Blueprint",),
    "explorer.blueprint.load": ("load",),
    "explorer.cost.crosscheck.lengths": ("Lengths",),
    "explorer.cost.ledger.rows": ("OpCost",),
    "explorer.errors": (
        "BlueprintError",
        "ExplorerError",
        "MeasureError",
        "PluginError",
        "RefusedError",
        "UsageError",
    ),
    "explorer.huggingface.weights.load": ("load_weights",),
    "explorer.registry.hookspecs": ("hookimpl",),
    "explorer.registry.makers": ("Activation", "Norm"),
    "explorer.registry.sites": ("Site",),
    "explorer.registry.values": ("Value", "Width"),
    "explorer.study.result": ("Result",),
    "explorer.study.run": ("run",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = sorted([*_HOME_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'explorer' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
