"""Plugin distributions as pip leaves them: modules, and dist-info folders with their entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from explorer.registry import Registry, load_registry

_NORMS = """
from torch import nn
from explorer import hookimpl

class Norm(nn.Module):
    def __init__(self, dim: int, *, eps: float = 1e-6):
        super().__init__()
        self.dim, self.eps = dim, eps

@hookimpl
def register_norms():
    return {%s}
"""


@dataclass
class Site:
    """A folder on the path with modules and installed distributions."""

    folder: Path

    @staticmethod
    def norms(*names: str) -> str:
        """The source of a plugin module that offers norms of these names."""
        return _NORMS % ", ".join(f"{name!r}: Norm" for name in names)

    def module(self, name: str, source: str) -> Path:
        path = self.folder / f"{name}.py"
        path.write_text(source)
        importlib.invalidate_caches()
        return path

    def install(self, dist: str, points: Mapping[str, str] | str, version: str = "1.0", metadata: bool = True) -> Path:
        """A dist-info folder; points: entry points of our group, or the whole text of entry_points.txt."""
        folder = self.folder / f"{dist.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        if metadata:
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        lines = "" if isinstance(points, str) else "".join(f"{name} = {value}\n" for name, value in points.items())
        (folder / "entry_points.txt").write_text(points if isinstance(points, str) else f"[explorer]\n{lines}")
        importlib.invalidate_caches()
        return folder

    def plugin(self, name: str, source: str, version: str = "1.0") -> None:
        """A module with the entry point of its own name, of distribution ``name-dist``."""
        self.module(name, source)
        self.install(f"{name}-dist", {name: name}, version)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return Site(folder)


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    """``load(*modules)``: the registry as a new process would load it; at the end all that is forgotten."""
    path = list(sys.path)

    def fresh(*modules: str) -> Registry:
        forget()
        return load_registry(modules)

    def forget() -> None:
        load_registry.cache_clear()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
                del sys.modules[name]

    yield fresh
    forget()
    sys.path[:] = path
