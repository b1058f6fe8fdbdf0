"""Builds equal components once: what two layers, or two rows of a study, have in common is one module here."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from explorer.assembly.positions import PositionMaker
from explorer.registry.chosen import Chosen, Maker
from explorer.registry.sites import Site


@dataclass
class _Built:
    """A module, the positions that its constructor asked for, and what it warned of."""

    module: Any
    head_dims: tuple[int, ...]
    warned: tuple[warnings.WarningMessage, ...]


@dataclass
class Workshop:
    """`make` gives the same module for equal parameters and equal menu values, as far as the constructor picks them.

    Good for counting only: layers of a model that is put together from these share their modules. `entangled` holds
    those whose constructor itself hands out parameters that other modules have too: their sum says too much.
    """

    entangled: set[nn.Module] = field(default_factory=set)
    _built: dict[Hashable, _Built] = field(default_factory=dict)
    _owners: dict[int, nn.Module] = field(default_factory=dict)

    def make(self, chosen: Chosen, menu: Mapping[str, Any]) -> Any:
        """The component for a menu; None where nothing is built. For errors see `Chosen.build`."""
        key = asked_for(chosen, menu)
        if key not in self._built:
            self._built[key] = self._build(chosen, menu)
        else:
            self._again(self._built[key], menu)
        built = self._built[key]
        for warning in built.warned:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return built.module

    def _build(self, chosen: Chosen, menu: Mapping[str, Any]) -> _Built:
        asked: list[int] = []
        position = menu.get("position")
        if position is not None and "position" in chosen.picks:
            menu = {**menu, "position": partial(_noted, position, asked)}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            module = chosen.build(menu)
            if module is not None and next(module.parameters(), None) is not None:
                self._note_owner(module, chosen.build(menu))
        return _Built(module, tuple(asked), _distinct(warned))

    def _again(self, built: _Built, menu: Mapping[str, Any]) -> None:
        """Ask for positions as the constructor did: this stack must own them too, or refuse them."""
        for head_dim in built.head_dims:
            menu["position"](head_dim)

    def _note_owner(self, module: nn.Module, twin: nn.Module) -> None:
        """Whether parameters belong to another module too: to one built before, or to an equal one built again."""
        own, again = ({id(p): p for p in m.parameters()} for m in (module, twin))
        others = {self._owners[key] for key in own if key in self._owners}
        if others or own.keys() & again.keys():
            self.entangled |= {module, *others}
        self._owners.update(dict.fromkeys(own, module))


@contextmanager
def warnings_told() -> Iterator[list[str]]:
    """Collects what components warn of inside, each text once; the list is filled at the end. Others pass through."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield said
    for warning in caught:
        if _of_a_component(warning):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    said[:] = dict.fromkeys(said)


def _of_a_component(warning: warnings.WarningMessage) -> bool:
    """Whether a component warns of itself. torch's own warnings are about how it computes."""
    return warning.category is UserWarning and Path(torch.__file__).parent not in Path(warning.filename).parents


def _noted(position: Callable[[int], Any], asked: list[int], head_dim: int) -> Any:
    asked.append(head_dim)
    return position(head_dim)


def asked_for(chosen: Chosen, menu: Mapping[str, Any]) -> Hashable:
    """Equal where equal components are built: the component, its parameters, and what it picks of the menu."""
    picked = tuple((name, _picked(menu[name])) for name in sorted(chosen.picks) if name in menu)
    return identity(chosen), picked, menu.get("stack")  # a position is its stack's


def identity(chosen: Chosen) -> Hashable:
    """Equal for components that are the same with the same parameters; 1, 1.0 and true are three values."""
    return id(chosen.component), tuple((name, _frozen(value)) for name, value in sorted(chosen.params.items()))


def _picked(value: Any) -> Hashable:
    if isinstance(value, PositionMaker):
        block = value.block
        own = value.positions.dim, value.positions.stack
        return "position", identity(block.position), own, block.heads, block.causal
    if isinstance(value, Maker):
        return "maker", identity(value.chosen)
    if isinstance(value, Site):
        return "site", tuple(vars(value).items())  # all of it: depths take no part in comparing two sites
    return _frozen(value)


def _frozen(value: Any) -> Hashable:
    if isinstance(value, Chosen):
        return identity(value)
    if isinstance(value, Mapping):
        return "mapping", tuple((key, _frozen(inner)) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(_frozen(inner) for inner in value)
    return type(value), value


def _distinct(warned: list[warnings.WarningMessage]) -> tuple[warnings.WarningMessage, ...]:
    """Each warning once: the component was built twice."""
    return tuple({(str(w.message), w.category, w.filename, w.lineno): w for w in warned}.values())
