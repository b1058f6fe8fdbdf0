"""Which checks run over which components."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from explorer.errors import PluginError, UsageError, did_you_mean
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Component, Registry
from explorer.testing.check import Case, Check
from explorer.testing.checks import CHECKS
from explorer.testing.toy import Toy

Parameters = Mapping[str, Mapping[str, Mapping[str, Any]]]


def contract_cases(
    package: str | None = None, *, parameters: Parameters | None = None, registry: Registry | None = None
) -> list[Case]:
    """Every rule of the contract for every component of a package, or of all that is installed.

    parameters: {kind: {name: {parameter: value}}} for components whose required parameters cannot be guessed; others
    get small values that their constructor accepts. Slow checks come once for each kind.
    Raises: UsageError for a package that is not installed, PluginError for one that is broken.
    """
    registry = registry or load_registry()
    if package is not None:
        _check_package(package, registry)
    given = parameters or {}
    return [
        Case(toy, check)
        for kind in KINDS
        for toy, check in _of_kind(_toys(kind, package, given.get(kind, {}), registry), CHECKS[kind])
    ]


def _toys(kind: str, package: str | None, given: Mapping[str, Mapping[str, Any]], registry: Registry) -> list[Toy]:
    components = [c for c in registry.components(kind) if package in (None, c.package) and c.constructor is not None]
    return [Toy(component, registry, given.get(component.name)) for component in components]


def _of_kind(toys: list[Toy], checks: tuple[Check, ...]) -> Iterator[tuple[Toy, Check]]:
    for toy in toys:
        yield from ((toy, check) for check in checks if not check.slow)
    # The one with most to choose says most about its kind.
    richest = max(toys, key=lambda toy: _parameters(toy.component), default=None)
    if richest is not None:
        yield from ((richest, check) for check in checks if check.slow)


def _parameters(component: Component) -> int:
    try:
        return len(component.schema.parameters)
    except PluginError:
        return 0  # its own cases say so


def _check_package(name: str, registry: Registry) -> None:
    for broken in registry.broken:
        if broken.name == name:
            raise PluginError(str(broken))
    installed = [package.name for package in registry.packages]
    if name not in installed:
        hint = did_you_mean(name, installed)
        known = f"installed: {', '.join(installed)}"
        raise UsageError(f"no plugin package is called {name!r}{f'; {hint}' if hint else ''}; {known}")
