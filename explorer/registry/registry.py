"""What is installed: components by kind and name, each with where it comes from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from explorer.errors import PluginError, did_you_mean, hints
from explorer.registry.kinds import Kind
from explorer.registry.parameters import Schema, SignatureError, read_schema, without_partials

NAMED = "-p "
"""What stands before the name of a module that was named for one call, where else a distribution is told."""


@dataclass(frozen=True)
class Origin:
    """The package a component comes from, and the distribution that installed it."""

    package: str
    distribution: str
    version: str
    location: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


class Sourced:
    """What comes from a package: its origin's fields are its own."""

    origin: Origin

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
    def location(self) -> str:
        return self.origin.location


@dataclass(frozen=True)
class Component(Sourced):
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
    def doc(self) -> str:
        """The constructor's own docstring; formula and source stand in its first lines."""
        if self.constructor is None:
            return "Nothing is built."
        inner = without_partials(self.constructor)
        # A class without one would inherit that of nn.Module.
        return inspect.cleandoc((vars(inner).get("__doc__") if inspect.isclass(inner) else inner.__doc__) or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring on one line: what it computes, and who says so."""
        return " ".join(self.doc.partition("\n\n")[0].split())

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
class CostRule(Sourced):
    """What a package says that one of its own operators costs: see ``register_cost_rules``.

    op: as torch names it, ``namespace::name``. rule: (arguments by name, result) -> an ``OpCost``.
    rivals: rules of other packages for the same operator.
    """

    op: str
    rule: Callable[[Mapping[str, Any], Any], Any]
    origin: Origin
    rivals: tuple[CostRule, ...] = ()

    def __str__(self) -> str:
        return f"cost rule for {self.op} of {self.origin} ({self.package})"


@dataclass(frozen=True)
class HardwareEntry(Sourced):
    """What a package says of one device, as it is written: see ``register_hardware``."""

    name: str
    entry: Mapping[str, Any]
    origin: Origin

    def __str__(self) -> str:
        return f"hardware '{self.name}' of {self.origin} ({self.package})"


@dataclass(frozen=True)
class Package(Sourced):
    """A healthy plugin package. ``plugin``: the module (or object) whose hooks it is."""

    origin: Origin
    components: tuple[Component, ...]
    plugin: Any = field(default=None, repr=False, compare=False)
    cost_rules: tuple[CostRule, ...] = ()
    hardware: tuple[HardwareEntry, ...] = ()

    @property
    def name(self) -> str:
        return self.origin.package


@dataclass(frozen=True)
class Broken(Sourced):
    """A plugin package that gives nothing, and why."""

    origin: Origin
    reason: str

    @property
    def name(self) -> str:
        return self.origin.package

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

    @property
    def cost_rules(self) -> Mapping[str, CostRule]:
        """What packages say about operators of their own, by operator; where two do, each has the other as a rival."""
        found: dict[str, tuple[CostRule, ...]] = {}
        for package in self.packages:
            for rule in package.cost_rules:
                found[rule.op] = (*found.get(rule.op, ()), rule)
        return {op: replace(first, rivals=tuple(others)) for op, (first, *others) in found.items()}

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of ``-p`` among the packages, as they were named."""
        named = (package.distribution.partition(NAMED) for package in self.packages)
        return tuple(name for before, mark, name in named if mark and not before)

    @property
    def hardware(self) -> tuple[HardwareEntry, ...]:
        """Devices of all packages, by package and name."""
        return tuple(entry for package in self.packages for entry in package.hardware)

    def find(self, kind: str, name: str) -> Component:
        """The component of this kind called ``name`` or ``package:name``.

        Raises: NameProblem.
        """
        package, colon, bare = name.rpartition(":")
        found = self._index.get((kind, bare), ())
        if colon:
            found = tuple(component for component in found if component.package == package)
        if len(found) == 1:
            return found[0]
        if found:
            offers = " and ".join(f"{c.origin} ({c.package})" for c in found)
            raise NameProblem(
                f"{'two' if len(found) == 2 else len(found)} packages offer the {kind} '{bare}': {offers}",
                tuple(f"write '{c.package}:{c.name}' for the one of {c.origin}" for c in found),
            )
        unknown_package = colon and package not in self._package_names()
        lines = self._package_hints(package) if unknown_package else self._name_hints(kind, package, bare)
        raise NameProblem(f"no {kind} is called {name!r}", hints(*lines, *map(str, self.broken), _REINSTALL))

    def _package_hints(self, package: str) -> list[str | None]:
        names = self._package_names()
        return [
            f"there is no plugin package {package!r}",
            did_you_mean(package, names),
            f"packages: {', '.join(names)}",
        ]

    def _name_hints(self, kind: str, package: str, name: str) -> list[str | None]:
        elsewhere = [c for (other, this), found in self._index.items() if this == name and other != kind for c in found]
        return [
            *(f"{name!r} is of kind {c.kind.name} ({c.package})" for c in elsewhere),
            *(f"package {c.package!r} has one: write {c.package}:{name}" for c in self._index.get((kind, name), ())),
            did_you_mean(name, [other for other in self.names(kind) if other != name]),
            f"package {package!r} has no {kind} of that name" if package else None,
            f"installed: {', '.join(self.names(kind)) or 'none'}",
        ]

    def _package_names(self) -> list[str]:
        return [package.name for package in self.packages]


_REINSTALL = "`explorer plugins list` shows all; after a change of its entry points a plugin must be reinstalled"
