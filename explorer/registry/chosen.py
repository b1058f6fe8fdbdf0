"""A component with its parameters, as a blueprint chooses it; building it from a block's menu."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from explorer.errors import NOWHERE, PluginError, RefusedError, Where
from explorer.registry.parameters import Parameter, written_text
from explorer.registry.registry import Component

_NO_MENU: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Chosen:
    """A component and what is written for it; parameters not written keep their defaults.

    params: plain values, and Chosen for nested components (also those that are defaults). places: where each written
    parameter stands.
    """

    component: Component
    params: Mapping[str, Any] = field(default_factory=dict)
    where: Where = field(default=NOWHERE, compare=False)
    places: Mapping[str, Where] = field(default_factory=dict, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.component.label

    @property
    def is_none(self) -> bool:
        """Whether nothing is built where it stands."""
        return self.component.constructor is None

    @cached_property
    def picks(self) -> frozenset[str]:
        return frozenset(self.component.schema.picks)

    def given(self, name: str) -> Any:
        """What is written for a parameter, else its default (None for a menu parameter)."""
        return self.params.get(name, self.component.schema.parameters[name].default)

    def with_param(self, name: str, value: Any, where: Where) -> Chosen:
        return replace(self, params={**self.params, name: value}, places={**self.places, name: where})

    def missing(self) -> list[str]:
        """Names of required parameters that are not written."""
        required = [p.name for p in self.component.schema.parameters.values() if p.required]
        return [name for name in required if name not in self.params]

    def nested(self) -> list[tuple[str, Chosen]]:
        return [(name, value) for name, value in self.params.items() if isinstance(value, Chosen)]

    def plain(self) -> dict[str, Any]:
        """``{"gqa": {"kv_heads": 8, ...}}`` with every parameter, defaults included (menu parameters when written)."""
        return {self.name: self.settings()}

    def settings(self) -> dict[str, Any]:
        shown = [p for p in self.component.schema.parameters.values() if not p.menu or p.name in self.params]
        return {p.name: _plain(self.params.get(p.name, None if p.required else p.default)) for p in shown}

    def short(self) -> str:
        """``gqa:kv_heads=8:qk_norm=rmsnorm``: the command line's form, only what is written."""
        return ":".join([self.name, *(f"{name}={_short(self.params[name])}" for name in self.places)])

    def build(self, menu: Mapping[str, Any]) -> Any:
        """The component, from the menu values its constructor picks and its own parameters; None where nothing is.

        Raises: RefusedError where the constructor refuses its sizes, PluginError where it fails otherwise.
        """
        component = self.component
        if component.constructor is None:
            return None
        # A parameter that stands on the menu too: the component's own, else the block's.
        values = {name: self.params[name] if name in self.params else menu[name] for name in component.schema.picks}
        positional = [values[name] for name in component.schema.picks]
        try:
            return component.constructor(*positional, **self.arguments())
        except (ValueError, RefusedError) as error:
            reason = error.message if isinstance(error, RefusedError) else str(error)
            raise RefusedError(f"{component.kind.name} '{self.short()}': {reason}", self.where) from error
        except (RuntimeError, OverflowError, MemoryError) as error:
            # torch reports sizes that overflow as RuntimeError; it is the sizes that are refused.
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RefusedError(f"{component.kind.name} '{self.short()}' cannot be built: {reason}", self.where) from error
        except Exception as error:
            raise PluginError(self._blame(error)) from error

    def arguments(self) -> dict[str, Any]:
        """The keyword arguments right of ``*``: makers for nested components, Value objects, plain values."""
        parameters = self.component.schema.parameters.values()
        return {p.name: self._argument(p) for p in parameters if not p.menu and self._passed(p)}

    def _passed(self, parameter: Parameter) -> bool:
        # A default that the constructor holds needs no passing, unless it is plain and the constructor wants an object.
        structured = parameter.shape.value is not None and not parameter.required and parameter.default is not None
        return parameter.name in self.params or structured

    def _argument(self, parameter: Parameter) -> Any:
        value = self.params.get(parameter.name, parameter.default)
        if isinstance(value, Chosen):
            return value.maker()
        if value is not None and parameter.shape.value is not None and parameter.shape.leaf_fault(value):
            return parameter.shape.value.parse(value)
        return value

    def maker(self, menu: Mapping[str, Any] = _NO_MENU) -> Maker:
        return Maker(self, menu)

    def _blame(self, error: Exception) -> str:
        component = self.component
        return (
            f"{component.kind.name} '{component.name}' of {component.origin} ({component.package}) failed to build "
            f"with {self.short()}: {type(error).__name__}: {error}"
        )


@dataclass(frozen=True)
class Maker:
    """Builds a nested component as often as its owner wants; positional arguments are the kind's menu in order."""

    chosen: Chosen
    menu: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *values: Any) -> Any:
        kind = self.chosen.component.kind
        return self.chosen.build({**self.menu, **dict(zip(kind.menu, values, strict=False))})

    @cached_property
    def inputs(self) -> int:
        """Tensors that the component's forward requires: 2 for a gated activation."""
        parameters = inspect.signature(self().forward).parameters.values()
        return sum(1 for p in parameters if p.default is inspect.Parameter.empty and p.kind is not p.VAR_KEYWORD)


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Chosen) else value


def _short(value: Any) -> str:
    if isinstance(value, Chosen):
        return value.name if not value.places else written_text(_written(value))
    return written_text(value)


def _written(value: Any) -> Any:
    if isinstance(value, Chosen):
        return {value.name: {k: _written(value.params[k]) for k in value.places}} if value.places else value.name
    return value
