"""Imports run one way: down the folders of `explorer`, and from plugins to its public names. Read off the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import explorer

ROOT = Path(__file__).resolve().parents[1]
CORE, PLUGINS = ROOT / "explorer", ROOT / "plugins"
LAYERS = (  # each may import itself and what stands before it
    "errors", "registry", "blueprint", "assembly", "huggingface", "cost", "latency", "prediction", "behaviour", "study",
    "report", "testing", "cli", "__main__",
)  # fmt: skip
OUTSIDE = frozenset({"torch", "annotated_types"})  # what a plugin may import besides the standard library
HEAVY = ("torch", "polars", "altair", "vl_convert", "ray", "fvcore", "torchinfo", "transformers")
LONGEST = 400

PACKAGES = sorted(path.parent.name for path in PLUGINS.glob("*/__init__.py"))
SOURCES = sorted([*CORE.rglob("*.py"), *PLUGINS.rglob("*.py")])
CORE_SOURCES = [path for path in SOURCES if CORE in path.parents and path != CORE / "__init__.py"]
PLUGIN_SOURCES = [path for path in SOURCES if PLUGINS in path.parents]


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    base = PLUGINS if PLUGINS in path.parents else ROOT
    return ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of every import anywhere in a file, `explorer.name` after `import explorer` included.

    The name is "" for `import module`.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, "") for alias in node.names if alias.name != "explorer")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{label(path)}:{node.lineno}: a relative import"
            yield from ((node.lineno, node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "explorer":
            yield node.lineno, "explorer", node.attr


def layer_of(module: str, name: str) -> str:
    """The folder of `explorer` that an import reaches; a public name counts as the module that it comes from."""
    if module == "explorer":
        home = explorer._HOME_OF.get(name)
        module = home or f"explorer.{name}"
    return module.split(".")[1]


@pytest.mark.parametrize("path", CORE_SOURCES, ids=label)
def test_core_imports_run_downwards(path: Path) -> None:
    own = LAYERS.index(module_name(path).split(".")[1])
    for line, module, name in imports(path):
        if module.split(".")[0] != "explorer" or (module, name) == ("explorer", "__version__"):
            continue
        layer = layer_of(module, name)
        assert layer in LAYERS, f"{label(path)}:{line}: 'explorer.{layer}' stands in no order of layers"
        assert LAYERS.index(layer) <= own, f"{label(path)}:{line}: {LAYERS[own]} imports {layer}, which stands above it"


@pytest.mark.parametrize("path", CORE_SOURCES, ids=label)
def test_core_names_no_plugin_package(path: Path) -> None:
    named = re.findall(rf"\b(?:{'|'.join(PACKAGES)})\b", path.read_text(encoding="utf-8"))
    assert not named, f"{label(path)} names {', '.join(sorted(set(named)))}: the core knows plugins by their hooks only"


@pytest.mark.parametrize("path", PLUGIN_SOURCES, ids=label)
def test_plugins_import_public_names_only(path: Path) -> None:
    own = module_name(path).split(".")[0]
    for line, module, name in imports(path):
        top = module.split(".")[0]
        if module == "explorer":
            assert name in explorer.__all__, f"{label(path)}:{line}: 'explorer.{name}' is not in explorer.__all__"
            continue
        allowed = top == own or top in OUTSIDE or top in sys.stdlib_module_names
        assert allowed, f"{label(path)}:{line}: {own} imports {module}; of explorer its public names only"


@pytest.mark.parametrize("path", SOURCES, ids=label)
def test_files_are_short(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines < LONGEST, f"{label(path)} has {lines} lines; one concept a file, fewer than {LONGEST}"


def test_every_public_name_is_there() -> None:
    assert explorer.__all__ == sorted(set(explorer.__all__))
    for name in explorer.__all__:
        assert getattr(explorer, name) is not None


@pytest.mark.parametrize(
    "start",
    [
        "import explorer",
        "import explorer; dir(explorer)",
        "import runpy, sys; sys.argv = ['explorer', '--help']; runpy.run_module('explorer', run_name='__main__')",
    ],
)
def test_starting_loads_nothing_heavy(start: str) -> None:
    script = f"""
import sys
try:
    {start}
except SystemExit as end:
    assert not end.code, end.code
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, f"loaded: {{loaded}}"
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_modules_import_in_any_order_without_warnings(order: str) -> None:
    """Once from the first module on and once from the last: what leans on an earlier import fails in one of them."""
    modules = sorted(module_name(path) for path in SOURCES if path.name != "__main__.py")
    names = modules if order == "forwards" else modules[::-1]
    script = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    command = [sys.executable, "-W", "error", "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
