"""Find the entry points of plugin packages in the metadata of what is installed, each with where it comes from.

Pluggy's own loader drops a second entry point of one name without a word; here it is an error that names both.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint
from itertools import groupby

from explorer.registry.hookspecs import PROJECT
from explorer.registry.names import name_fault
from explorer.registry.registry import Broken, Origin


@dataclass(frozen=True)
class Found:
    """The entry point of one plugin package."""

    point: EntryPoint
    origin: Origin


def discover() -> tuple[list[Found], list[Broken]]:
    """All plugin packages by name, whatever the order of folders on the path, and those that cannot be told apart."""
    points, broken = _entry_points()
    found: list[Found] = []
    for name, group in groupby(_distinct(points), key=lambda one: one.point.name):
        same = list(group)
        fault = _clash(same) if len(same) > 1 else name_fault(name)
        if fault:
            broken.append(Broken(same[0].origin, fault))
        else:
            found += same
    return found, broken


def _entry_points() -> tuple[list[EntryPoint], list[Broken]]:
    try:
        return list(importlib.metadata.entry_points(group=PROJECT)), []
    except Exception:  # metadata that cannot be parsed, of any distribution, hides all entry points
        return _one_by_one()


def _one_by_one() -> tuple[list[EntryPoint], list[Broken]]:
    points: list[EntryPoint] = []
    broken: list[Broken] = []
    seen: set[str] = set()
    for dist in importlib.metadata.distributions():
        origin = _origin(_name(dist), dist)
        if _normal(origin.distribution) in seen:
            continue  # the first on the path is the one that Python imports
        seen.add(_normal(origin.distribution))
        try:
            points += dist.entry_points.select(group=PROJECT)
        except Exception as error:
            broken.append(Broken(origin, f"its metadata cannot be read: {type(error).__name__}: {error}"))
    return points, broken


def _distinct(points: Iterable[EntryPoint]) -> list[Found]:
    """In the order of names; a distribution that is seen twice (a stale egg-info beside it) counts once."""
    first: dict[tuple[str, str], Found] = {}
    for point in points:
        one = Found(point, _origin(point.name, point.dist))
        first.setdefault((_normal(one.origin.distribution), point.value), one)
    return sorted(first.values(), key=lambda one: (one.point.name, str(one.origin), one.point.value))


def _clash(same: Iterable[Found]) -> str:
    owners = " and ".join(f"{one.origin} ({one.point.value})" for one in same)
    return f"{owners} register the same entry point; uninstall all but one, or rename it there"


def _origin(package: str, dist: Distribution | None) -> Origin:
    if dist is None:
        return Origin(package, "unknown distribution", "")
    return Origin(package, _name(dist), _version(dist), str(dist.locate_file("")))


def _name(dist: Distribution) -> str:
    try:
        return dist.name or _nameless(dist)
    except Exception:  # no METADATA: what is raised differs between versions of Python
        return _nameless(dist)


def _nameless(dist: Distribution) -> str:
    return f"a distribution without a name in {dist.locate_file('')}"


def _version(dist: Distribution) -> str:
    try:
        return dist.version or ""
    except Exception:
        return ""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
