"""What one pass through a stack hands to its sublayers besides x, and which of it each one takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from explorer.assembly.cache import Cache, CacheView
from explorer.errors import PluginError
from explorer.registry.chosen import Chosen


@dataclass(frozen=True)
class Pass:
    """One pass through a stack.

    context (B, S, dim): what cross-attention reads; empty when the cache holds its keys and values.
    mask, context_mask: bool, True = may attend, broadcastable to (B, heads, T, S), for self- and cross-attention.
    ids (B, T): the token ids, None without a vocabulary. shared: a dict that lives as long as this pass.
    """

    context: Tensor | None = None
    mask: Tensor | None = None
    context_mask: Tensor | None = None
    cache: Cache | None = None
    ids: Tensor | None = None
    shared: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wiring:
    """The names among `OFFERED` that a sublayer's forward takes, decided once when it is built.

    slot: its view in the cache. cross: whether it reads the context.
    """

    names: tuple[str, ...]
    slot: int
    cross: bool = False

    def inputs(self, run: Pass) -> dict[str, Any]:
        """The keyword arguments of one call."""
        return {name: _OFFERS[name](self, run) for name in self.names}


def _cache_view(wiring: Wiring, run: Pass) -> CacheView | None:
    return None if run.cache is None else run.cache.views[wiring.slot]


_OFFERS: Mapping[str, Callable[[Wiring, Pass], Any]] = {
    "context": lambda wiring, run: run.context if wiring.cross else None,
    "mask": lambda wiring, run: run.context_mask if wiring.cross else run.mask,
    "cache": _cache_view,
    "ids": lambda wiring, run: run.ids,
    "shared": lambda wiring, run: run.shared,
}
OFFERED = tuple(_OFFERS)


def forward_names(built: nn.Module, chosen: Chosen) -> tuple[str, ...]:
    """Which of `OFFERED` the forward of a built sublayer takes.

    Raises: PluginError for a required parameter that nobody offers.
    """
    component = chosen.component
    who = f"{component.kind.name} '{component.name}' of {component.origin} ({component.package})"
    _, *parameters = inspect.signature(built.forward).parameters.values()
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty and parameter.kind not in _REST
        if required and parameter.name not in OFFERED:
            raise PluginError(f"{who}: forward takes '{parameter.name}', but is offered x, {', '.join(OFFERED)}")
    taken = {parameter.name for parameter in parameters}
    return tuple(name for name in OFFERED if name in taken)


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
