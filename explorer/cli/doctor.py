"""`explorer doctor`: what is installed, what is broken, and what to do about it."""

import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from explorer import __version__
from explorer.cli.failures import exit_codes
from explorer.cli.options import Debug, Modules
from explorer.cli.screen import emit

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from explorer.registry.registry import Package

DISTRIBUTION = "architecture-explorer"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``todo`` says what to do; with it, the thing is broken."""

    what: str
    todo: str = ""

    def __str__(self) -> str:
        return f"  broken  {self.what}\n          {self.todo}" if self.todo else f"  ok      {self.what}"


def doctor(modules: Modules = None, debug: Debug = False) -> None:
    """Show versions, devices and plugins; exit 1 if something is broken."""
    with exit_codes(debug):
        sections = {
            "dependencies": list(_dependencies()),
            "devices": list(_devices()),
            "plugins": list(_plugins(tuple(modules or ()))),
        }
        system = f"{platform.system()} {platform.machine()}"
        lines = [f"explorer {__version__}, Python {platform.python_version()}, {system}"]
        for title, findings in sections.items():
            lines += [title, *map(str, findings)]
        emit("\n".join(lines) + "\n")
        if any(finding.todo for findings in sections.values() for finding in findings):
            sys.exit(1)


def _dependencies() -> Iterator[Finding]:
    from packaging.requirements import Requirement

    try:
        texts = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding(f"{DISTRIBUTION} is not installed", "run `pip install -e .` in its folder")
        return
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _dependency(requirement)


def _dependency(requirement: "Requirement") -> Finding:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(f"{requirement.name} is not installed", f"run `pip install '{requirement}'`")
    if not requirement.specifier.contains(version, prereleases=True):
        needed = f"{requirement.name} {version}, but {requirement.specifier} is needed"
        return Finding(needed, f"run `pip install --upgrade '{requirement}'`")
    return Finding(f"{requirement.name} {version}")


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except Exception as error:
        yield Finding(f"torch cannot be imported: {type(error).__name__}: {error}", "reinstall torch for this machine")
        return
    yield Finding(f"cpu, {torch.get_num_threads()} threads")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield Finding(f"cuda:{index}, {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    if not torch.cuda.device_count():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no CUDA device is visible"
        yield Finding(f"no GPU ({built}): --measure times the CPU")


def _plugins(modules: tuple[str, ...]) -> Iterator[Finding]:
    from explorer.cli.installed import clash_text, rival_text
    from explorer.errors import PluginError
    from explorer.registry import load_registry

    try:
        registry = load_registry(modules)
    except PluginError as error:
        yield Finding(str(error), "nothing can be built before this is mended")
        return
    for package in registry.packages:
        yield from _package(package)
    for broken in registry.broken:
        what = f"{broken.name} ({broken.origin}): {' '.join(broken.reason.split())}"
        yield Finding(what, f"mend, upgrade or uninstall {broken.distribution}; the others work without it")
    for rule in registry.cost_rules.values():
        if rule.rivals:
            yield Finding(rival_text(rule), "models that call the operator are refused until one of them is gone")
    for clash in registry.clashes:
        yield Finding(clash_text(clash), "blueprints that write the bare name, or leave it as a default, are refused")


def _package(package: "Package") -> Iterator[Finding]:
    """The package, and each of its components whose signature is no schema."""
    from explorer.errors import PluginError

    yield Finding(f"{package.name} ({package.origin}): {', '.join(c.name for c in package.components) or 'nothing'}")
    for component in package.components:
        try:
            _ = component.schema
        except PluginError as error:
            yield Finding(str(error), f"mend, upgrade or uninstall {package.distribution}")
