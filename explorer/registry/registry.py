"""What is installed: components by kind and name, each with where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from explorer.errors import PluginError, did_you_mean, hints
from explorer.registry.kinds import KINDS, Kind
from explorer.registry.parameters import Schema, SignatureError, read_schema


@dataclass(frozen=True)
class Origin:
    """The package a component comes from, and the distribution that installed it."""

    package: str
    distribution: str
    version: str
    location: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


@dataclass(frozen=True)
class Component:
    """One name of one kind in a blueprint.

    constructor None: nothing is built where it stands. shared: another package offers the same name.
    """

    kind: Kind
    name: str
    constructor: Callable[..., Any] | None
    origin: Origin
    shared: bool = False

    @property
    def label(self) -> str:
        """The name that finds this component: ``package:name`` where the bare one is ambiguous."""
        return f"{self.package}:{self.name}" if self.shared else self.name

    @property
    def package(self) -> str:
        return self.origin.package

    @property
    def distribution(self) -> str:
        return self.origin.distribution

    @property
    def version(self) -> str:
        return self.origin.version

    @property
    def doc(self) -> str:
        """The constructor's docstring; formula and source stand in its first lines."""
        return inspect.getdoc(self.constructor) or "" if self.constructor else "Nothing is built."

    @cached_property
    def schema(self) -> Schema:
        """Menu and parameters, read off the constructor.

        Raises: PluginError that names the parameter, the component and its distribution.
        """
        if self.constructor is None:
            return Schema((), {})
        try:
            return read_schema(self.constructor, self.kind)
        except SignatureError as error:
            raise PluginError(f"{self.kind.name} '{self.name}' of {self.origin} ({self.package}): {error}") from error

    def __repr__(self) -> str:
        return f"<{self.kind.name} {self.package}:{self.name}>"


@dataclass(frozen=True)
class Package:
    """A healthy plugin package."""

    origin: Origin
    components: tuple[Component, ...]

    @property
    def name(self) -> str:
        return self.origin.package

    @property
    def distribution(self) -> str:
        return self.origin.distribution

    @property
    def version(self) -> str:
        return self.origin.version

    @property
    def location(self) -> str:
        return self.origin.location


@dataclass(frozen=True)
class Broken:
    """A plugin package that gives nothing, and why."""

    origin: Origin
    reason: str

    @property
    def name(self) -> str:
        return self.origin.package

    @property
    def distribution(self) -> str:
        return self.origin.distribution

    @property
    def version(self) -> str:
        return self.origin.version

    def __str__(self) -> str:
        return f"plugin package '{self.name}' of {self.origin} is broken: {self.reason}"


class NameProblem(Exception):
    """A component's name that cannot be used, with hints for the user."""

    def __init__(self, message: str, lines: tuple[str, ...] = ()):
        super().__init__(message)
        self.hints = lines


@dataclass(frozen=True)
class Registry:
    """Everything installed; independent of the order of loading."""

    packages: tuple[Package, ...]
    broken: tuple[Broken, ...] = ()
    _index: dict[tuple[str, str], tuple[Component, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index: dict[tuple[str, str], tuple[Component, ...]] = {}
        for package in sorted(self.packages, key=lambda package: package.name):
            for component in package.components:
                key = component.kind.name, component.name
                index[key] = (*index.get(key, ()), component)
        for key, found in index.items():
            if len(found) > 1:
                index[key] = tuple(replace(component, shared=True) for component in found)
        object.__setattr__(self, "_index", index)

    def components(self, kind: str) -> tuple[Component, ...]:
        """All components of a kind, by name, then package."""
        return tuple(c for key in sorted(self._index) if key[0] == kind for c in self._index[key])

    def names(self, kind: str) -> list[str]:
        return sorted(name for this, name in self._index if this == kind)

    @property
    def clashes(self) -> tuple[tuple[Component, ...], ...]:
        """Names that several packages offer; each is usable as ``package:name`` only."""
        return tuple(found for _, found in sorted(self._index.items()) if len(found) > 1)

    def find(self, kind: str, name: str) -> Component:
        """The component of this kind called ``name`` or ``package:name``.

        Raises: NameProblem.
        """
        package, _, bare = name.rpartition(":")
        found = self._index.get((kind, bare), ())
        if package:
            found = tuple(component for component in found if component.package == package)
        if len(found) == 1:
            return found[0]
        if found:
            offers = " and ".join(f"{c.origin} ({c.package})" for c in found)
            raise NameProblem(
                f"two packages offer the {kind} '{bare}': {offers}",
                tuple(f"write '{c.package}:{c.name}' for the one of {c.origin}" for c in found),
            )
        raise NameProblem(f"no {kind} is called {name!r}", self._unknown_hints(kind, package, bare))

    def _unknown_hints(self, kind: str, package: str, name: str) -> tuple[str, ...]:
        elsewhere = [other for other in KINDS if other != kind and (other, name) in self._index]
        return hints(
            *(f"{name!r} is of kind {other}" for other in elsewhere),
            did_you_mean(name, self.names(kind)),
            f"package {package!r} has no {kind} of that name" if package in self._package_names() else None,
            f"installed: {', '.join(self.names(kind)) or 'none'}",
            *(str(broken) for broken in self.broken),
            "`explorer plugins list` shows all; a plugin that was installed or renamed must be reinstalled to be seen",
        )

    def _package_names(self) -> set[str]:
        return {package.name for package in self.packages}

