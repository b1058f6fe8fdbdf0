"""Load plugin packages one by one: a broken one is reported and never stops the others.

Built-in and third-party packages come through the same door, an entry point in group ``explorer``. A package's
components count only once all of its hooks have returned and all signatures can be read.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pluggy

from explorer.errors import ExplorerError, PluginError, UsageError, did_you_mean
from explorer.registry import hookspecs
from explorer.registry.blame import told
from explorer.registry.discovery import Found, discover
from explorer.registry.kinds import KINDS, Kind
from explorer.registry.modules import import_named
from explorer.registry.names import name_fault
from explorer.registry.registry import NAMED, Broken, Component, CostRule, HardwareEntry, Origin, Package, Registry

_KINDS = {kind.hook: kind for kind in KINDS.values()}
_COST_RULES = "register_cost_rules"
_HARDWARE = "register_hardware"
_HOOKS = sorted([*_KINDS, _COST_RULES, _HARDWARE])
_RETURNS = {_COST_RULES: "operators to rules", _HARDWARE: "device names to entries"}
_HOOK_TEXT = f"the hooks, none takes an argument: {', '.join(_HOOKS)}"


@lru_cache(maxsize=16)
def load_registry(modules: tuple[str, ...] = ()) -> Registry:
    """Everything installed, and the named modules (``-p``) for this call.

    Raises: UsageError where a named module is not there, PluginError where it is broken or nothing is installed.
    """
    # What a plugin prints while it is imported must not end up in a document on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        packages, broken = _load_installed()
        for name in dict.fromkeys(modules):
            packages = _with_named(packages, name)
    if not packages and not broken:
        raise PluginError("no plugin package is installed, not even the built-in ones: run `pip install -e .` first")
    by_name = sorted(packages, key=lambda package: package.name)
    return Registry(tuple(by_name), tuple(sorted(broken, key=lambda one: (one.name, one.reason))))


def _load_installed() -> tuple[list[Package], list[Broken]]:
    found, broken = discover()
    packages: list[Package] = []
    for one in found:
        try:
            packages.append(_load(one))
        except ExplorerError as error:
            broken.append(Broken(one.origin, str(error)))
    return packages, broken


def _load(found: Found) -> Package:
    point, origin = found.point, found.origin
    with _failing(f"import of {point.value}"):
        try:
            plugin = point.load()
        except ModuleNotFoundError as error:
            if error.name is None or not f"{point.module}.".startswith(f"{error.name}."):
                raise
            raise PluginError(_reinstall(origin, error.name, "is not there")) from error
    location = _location(point.module)
    if location is None:
        raise PluginError(_reinstall(origin, point.module, "has no file: a folder without __init__.py is no package"))
    return read_package(plugin, replace(origin, location=location))


def _reinstall(origin: Origin, module: str, fault: str) -> str:
    return f"its metadata names the module '{module}', which {fault}; reinstall {origin.distribution}"


def _with_named(packages: Sequence[Package], name: str) -> list[Package]:
    """The packages and the one of ``-p name``, which may be among them already."""
    with _prefixed(f"-p {name}"):
        with _failing("import"):
            module = import_named(name)
        if any(other.plugin is module for other in packages):
            return [*packages]
        for other in packages:
            if other.name == module.__name__:
                raise PluginError(f"{other.origin} has a package '{other.name}' too ({other.location}); rename one")
        location = _location(module.__name__) or ""
        return [*packages, read_package(module, Origin(module.__name__, f"{NAMED}{name}", "", location))]


def read_package(plugin: Any, origin: Origin) -> Package:
    """The components that the hooks of a module (or another pluggy plugin) return, all or none.

    Raises: PluginError.
    """
    manager = _manager(plugin, origin)
    components = [
        component
        for hook, kind in sorted(_KINDS.items())
        for offered in _offers(manager, hook)
        for component in _components(offered, kind, hook, origin)
    ]
    rules = [rule for offered in _offers(manager, _COST_RULES) for rule in _cost_rules(offered, origin)]
    hardware = [entry for offered in _offers(manager, _HARDWARE) for entry in _hardware(offered, origin)]
    _refuse_repeats([f"{component.kind.name} '{component.name}'" for component in components])
    _refuse_repeats([f"cost rule for {rule.op}" for rule in rules])
    _refuse_repeats([f"hardware '{entry.name}'" for entry in hardware])
    for component in components:
        _ = component.schema  # read now: a signature that is no schema breaks the package, not whoever lists it later
    in_order = sorted(components, key=lambda c: (c.kind.name, c.name))
    return Package(
        origin,
        tuple(in_order),
        plugin,
        tuple(sorted(rules, key=lambda rule: rule.op)),
        tuple(sorted(hardware, key=lambda entry: entry.name)),
    )


def _manager(plugin: Any, origin: Origin) -> pluggy.PluginManager:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    with _failing("reading its hooks"):
        try:
            manager.register(plugin, origin.package)
        except pluggy.PluginValidationError as error:
            raise PluginError(f"{error}; {_HOOK_TEXT}") from error
    callers = manager.get_hookcallers(plugin) or []
    for caller in callers:
        if not caller.has_spec() and not all(impl.optionalhook for impl in caller.get_hookimpls()):
            guess = did_you_mean(caller.name, _HOOKS)
            raise PluginError(f"there is no hook {caller.name}{f', {guess}' if guess else ''}; {_HOOK_TEXT}")
    if not callers:
        bare = [name for name in dir(plugin) if name in _HOOKS]
        missing = f"put @hookimpl above {bare[0]}" if bare else _HOOK_TEXT
        raise PluginError(f"it implements no hook; {missing}")
    return manager


def _offers(manager: pluggy.PluginManager, name: str) -> Iterator[dict[Any, Any]]:
    """What each implementation of a hook returns."""
    for impl in getattr(manager.hook, name).get_hookimpls():
        if impl.hookwrapper or impl.wrapper:
            raise PluginError(f"hook {name} is a wrapper; a plugin only adds components")
        yield _offered(name, impl.function)


def _offered(name: str, hook: Callable[[], Any]) -> dict[Any, Any]:
    with _failing(f"hook {name}"):
        offered = hook()
        if not isinstance(offered, Mapping):
            what = _RETURNS.get(name, "names to constructors")
            raise PluginError(f"hook {name} must return a mapping of {what}, not {type(offered).__name__}")
        return dict(offered)


def _components(offered: Mapping[Any, Any], kind: Kind, hook: str, origin: Origin) -> list[Component]:
    for name, constructor in offered.items():
        fault = name_fault(name)
        if fault:
            raise PluginError(f"hook {hook}: {fault}")
        if constructor is None and not kind.optional:
            raise PluginError(f"hook {hook}: {name!r} has no constructor; only an attention or feedforward may be None")
        if constructor is not None and not callable(constructor):
            raise PluginError(f"hook {hook}: {name!r} is no constructor but {type(constructor).__name__}")
    return [Component(kind, name, constructor, origin) for name, constructor in offered.items()]


def _cost_rules(offered: Mapping[Any, Any], origin: Origin) -> list[CostRule]:
    for op, rule in offered.items():
        if not isinstance(op, str) or not _OPERATOR.fullmatch(op):
            raise PluginError(f"hook {_COST_RULES}: {op!r} is no operator; write 'namespace::name', without overload")
        if not callable(rule):
            raise PluginError(f"hook {_COST_RULES}: the rule for '{op}' cannot be called: {type(rule).__name__}")
    return [CostRule(op, rule, origin) for op, rule in offered.items()]


def _hardware(offered: Mapping[Any, Any], origin: Origin) -> list[HardwareEntry]:
    for name, entry in offered.items():
        fault = name_fault(name)
        if fault:
            raise PluginError(f"hook {_HARDWARE}: {fault}")
        if not isinstance(entry, Mapping):
            raise PluginError(
                f"hook {_HARDWARE}: {name!r} must be a mapping of its numbers, not {type(entry).__name__}"
            )
    return [HardwareEntry(name, dict(entry), origin) for name, entry in offered.items()]


_OPERATOR = re.compile(r"\w+::\w+", re.ASCII)


def _refuse_repeats(offers: Sequence[str]) -> None:
    for offer, count in Counter(offers).items():
        if count > 1:
            raise PluginError(f"it offers the {offer} {count} times")


@contextlib.contextmanager
def _failing(what: str) -> Iterator[None]:
    """Whatever a plugin raises becomes a PluginError that says what failed, why and in which line.

    SystemExit too, and the panics of extension modules: neither is an Exception.
    """
    try:
        yield
    except (PluginError, UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(f"{what} failed: {told(error)}") from error


@contextlib.contextmanager
def _prefixed(text: str) -> Iterator[None]:
    try:
        yield
    except PluginError as error:
        raise PluginError(f"{text}: {error}") from error


def _location(name: str) -> str | None:
    """The folder of an imported package, or the file of a module; None for what has no file."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return None
    return str(Path(file).parent if Path(file).name == "__init__.py" else file)
