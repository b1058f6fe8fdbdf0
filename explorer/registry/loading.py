"""Find plugin packages and load them one by one: a broken one is reported and never stops the others.

Built-in and third-party packages come through the same door, an entry point in group ``explorer``. Pluggy's own loader
drops a second entry point of one name without a word and lets one broken import stop everything; hence this one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pluggy

from explorer.errors import PluginError
from explorer.registry import hookspecs
from explorer.registry.kinds import KINDS, Kind
from explorer.registry.registry import Broken, Component, Origin, Package, Registry

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_HOOKS = {kind.hook: kind for kind in KINDS.values()}


@lru_cache(maxsize=16)
def load_registry(modules: tuple[str, ...] = ()) -> Registry:
    """Everything installed, and the named modules (``-p``) for this call.

    Raises: PluginError where a module asked for by name is broken, or nothing at all is installed.
    """
    packages, broken = _load_entry_points()
    loaded = {package.name for package in packages}
    extra = [_load_named(name) for name in dict.fromkeys(modules)]
    packages += [package for package in extra if package.name not in loaded]
    if not packages and not broken:
        raise PluginError("no plugin package is installed, not even the built-in ones: run `pip install -e .` first")
    return Registry(tuple(sorted(packages, key=lambda package: package.name)), tuple(broken))


def _load_entry_points() -> tuple[list[Package], list[Broken]]:
    packages: list[Package] = []
    broken: list[Broken] = []
    for points in _by_name(importlib.metadata.entry_points(group=hookspecs.PROJECT)):
        origins = [_origin(point) for point in points]
        if len(points) > 1:
            owners = " and ".join(str(origin) for origin in origins)
            reason = f"{owners} both register the entry point '{points[0].name}'; uninstall one or rename it"
            broken.append(Broken(origins[0], reason))
            continue
        try:
            packages.append(read_package(points[0].load(), origins[0]))
        except PluginError as error:
            broken.append(Broken(origins[0], str(error)))
        except (Exception, SystemExit) as error:
            broken.append(Broken(origins[0], f"{type(error).__name__}: {error}"))
    return packages, broken


def _by_name(points: Iterable[Any]) -> Iterator[list[Any]]:
    """Entry points of one name together; a distribution seen twice (a stale egg-info beside it) counts once."""
    groups: dict[str, dict[tuple[str, str], Any]] = {}
    for point in points:
        key = _normal(point.dist.name if point.dist else ""), point.value
        groups.setdefault(point.name, {}).setdefault(key, point)
    for _, group in sorted(groups.items()):
        yield list(group.values())


def _origin(point: Any) -> Origin:
    dist = point.dist
    if dist is None:
        return Origin(point.name, "unknown distribution", "")
    return Origin(point.name, dist.name, dist.version, str(dist.locate_file("")))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _load_named(name: str) -> Package:
    try:
        module = _import_file(Path(name)) if name.endswith(".py") else _import_module(name)
    except (Exception, SystemExit) as error:
        raise PluginError(f"-p {name}: {type(error).__name__}: {error}") from error
    try:
        return read_package(module, Origin(module.__name__, f"-p {name}", "", str(module.__file__ or "")))
    except PluginError as error:
        raise PluginError(f"-p {name}: {error}") from error


def _import_module(name: str) -> ModuleType:
    # The console script's sys.path starts at its own folder; a module beside the user must be found too.
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def read_package(module: Any, origin: Origin) -> Package:
    """The components that a module's hooks return, all or none.

    Raises: PluginError.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, origin.package)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginError(f"{error}; the hooks, none takes an argument: {', '.join(sorted(_HOOKS))}") from error
    components: list[Component] = []
    for name, kind in sorted(_HOOKS.items()):
        for impl in getattr(manager.hook, name).get_hookimpls():
            if impl.hookwrapper or impl.wrapper:
                raise PluginError(f"hook {name} is a wrapper; a plugin only adds components")
            components += _components(_called(name, impl.function), kind, name, origin)
    return Package(origin, tuple(sorted(components, key=lambda c: (c.kind.name, c.name))))


def _called(name: str, hook: Callable[[], Any]) -> Any:
    try:
        return hook()
    except (Exception, SystemExit) as error:
        raise PluginError(f"hook {name} failed: {type(error).__name__}: {error}") from error


def _components(offered: Any, kind: Kind, hook: str, origin: Origin) -> list[Component]:
    if not isinstance(offered, Mapping):
        raise PluginError(f"hook {hook} must return a mapping of names to constructors, not {type(offered).__name__}")
    for name, constructor in offered.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise PluginError(f"hook {hook}: {name!r} is no name; use letters, digits, '_', '-', '.'")
        if constructor is None and not kind.optional:
            raise PluginError(f"hook {hook}: {name!r} has no constructor; only an attention or feedforward may be None")
        if constructor is not None and not callable(constructor):
            raise PluginError(f"hook {hook}: {name!r} is no constructor but {type(constructor).__name__}")
    return [Component(kind, name, constructor, origin) for name, constructor in offered.items()]

