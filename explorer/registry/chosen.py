"""A component with its parameters, as a blueprint chooses it; building it from a block's menu."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from explorer.errors import NOWHERE, PluginError, RefusedError, Where, is_out_of_memory
from explorer.registry.blame import told
from explorer.registry.parameters import Parameter
from explorer.registry.registry import Component
from explorer.registry.words import inner_text

_NO_MENU: Mapping[str, Any] = {}
# What torch says of sizes beyond its integers; it has no class of exceptions for it.
_TOO_LARGE = re.compile("overflow|negative dimension", re.IGNORECASE)


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

        Raises: RefusedError where the constructor refuses its sizes, PluginError where it fails otherwise. Running out
        of memory is neither: that passes through as it is.
        """
        component = self.component
        if component.constructor is None:
            return None
        # A parameter that stands on the menu too: the component's own, else the block's.
        positional = [self.params[name] if name in self.params else menu[name] for name in component.schema.picks]
        try:
            built = component.constructor(*positional, **self.arguments())
        except (PluginError, KeyboardInterrupt):
            raise  # the first of a nested component, which it names
        except RefusedError as error:
            raise self._refusal(error.message, error.where) from error
        except ValueError as error:
            raise self._refusal(str(error) or "it gives no reason") from error
        except BaseException as error:  # SystemExit too: it would end explorer without a word
            if is_out_of_memory(error):
                raise
            if _is_too_large(error):
                raise self._refusal(f"its sizes cannot be built: {_first_line(error)}") from error
            raise PluginError(f"{self._who} failed to build: {told(error)}") from error
        return self._checked(built)

    def _checked(self, built: Any) -> Any:
        from torch import nn
        from torch.nn.parameter import is_lazy

        if not isinstance(built, nn.Module):
            raise PluginError(f"{self._who} must build an nn.Module, not {type(built).__name__}")
        if any(is_lazy(tensor) for tensor in (*built.parameters(), *built.buffers())):
            raise PluginError(f"{self._who}: lazy parameters have no size to count")
        return built

    def _refusal(self, reason: str, where: Where = NOWHERE) -> RefusedError:
        """The refusal of this component; ``where`` is the place of the nested one that refused."""
        message = f"{self.component.kind.name} '{self.short()}': {reason}"
        return RefusedError(message, self._blamed(reason) if where == NOWHERE else where)

    def _blamed(self, reason: str) -> Where:
        """The place of the parameter that a reason names, which an option may have changed, else of the component."""
        named = (place for name, place in self.places.items() if re.search(rf"\b{re.escape(name)}\b", reason))
        return next(named, self.where)

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
        return copy.deepcopy(value)  # a list that a constructor keeps must not be this one

    def maker(self, menu: Mapping[str, Any] = _NO_MENU) -> Maker:
        return Maker(self, menu)

    @property
    def _who(self) -> str:
        component = self.component
        return f"{component.kind.name} '{self.short()}' of {component.origin} ({component.package})"


@dataclass(frozen=True)
class Maker:
    """Builds a nested component as often as its owner wants; positional arguments are the kind's menu in order."""

    chosen: Chosen
    menu: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, *values: Any) -> Any:
        kind = self.chosen.component.kind
        names = [name for name in kind.menu if name not in self.menu]
        if len(values) != len(names):
            raise TypeError(f"the maker of a component of kind {kind.name} takes ({', '.join(names)}), not {values}")
        return self.chosen.build({**self.menu, **dict(zip(names, values, strict=True))})

    @cached_property
    def inputs(self) -> int:
        """Tensors that the component's forward requires: 2 for a gated activation.

        Raises: PluginError where its forward does not say how many.
        """
        parameters = inspect.signature(self().forward).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        if not required or any(p.kind is p.VAR_POSITIONAL for p in required):
            names = ", ".join(map(str, parameters)) or "nothing"
            raise PluginError(f"{self.chosen._who}: forward must name the tensors it takes, not ({names})")
        return len(required)


Make = Callable[[Chosen, Mapping[str, Any]], Any]
"""How a component is built from a menu: `Chosen.build`, or what knows whether it built an equal one before."""


def _is_too_large(error: BaseException) -> bool:
    said = isinstance(error, RuntimeError | TypeError) and bool(_TOO_LARGE.search(str(error)))
    return said or isinstance(error, OverflowError)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _plain(value: Any) -> Any:
    return value.plain() if isinstance(value, Chosen) else value


def _short(value: Any) -> str:
    return inner_text(_written(value))


def _written(value: Any) -> Any:
    if isinstance(value, Chosen):
        return {value.name: {k: _written(value.params[k]) for k in value.places}} if value.places else value.name
    return value
