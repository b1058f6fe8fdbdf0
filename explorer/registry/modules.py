"""The modules that ``-p`` names: ``my_norms``, ``lab.norms`` or ``./my_norms.py``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from explorer.errors import UsageError

_SUFFIX = ".py"


def import_named(name: str) -> ModuleType:
    """The module of a name or file, imported once however it is written.

    Raises: UsageError where there is no such module; what the module itself raises passes through.
    """
    if name.endswith(_SUFFIX):
        return _import_file(name)
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"-p {name}: write the name of a module or the path of a .py file{_file_hint(name)}")
    _look_here()
    found = _find(name)
    if found is None:
        raise UsageError(f"-p {name}: no module is called that, neither here nor installed{_file_hint(name)}")
    if found.origin is None:
        folders = ", ".join(found.submodule_search_locations or ())
        raise UsageError(f"-p {name}: only a folder is called that, without an __init__.py: {folders}")
    return importlib.import_module(name)


def _import_file(name: str) -> ModuleType:
    path = Path(name).resolve()
    if not path.is_file():
        raise UsageError(f"-p {name}: there is no such file")
    package = path.stem == "__init__"
    module = path.parent.name if package else path.stem
    found = _find(module)
    if found is not None and found.origin is not None and Path(found.origin).resolve() == path:
        return importlib.import_module(module)
    if found is not None:
        raise UsageError(f"-p {name}: another module is called '{module}' ({found.origin}); rename the file")
    folders = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(module, path, submodule_search_locations=folders)
    assert spec is not None, path
    return _executed(spec)


def _executed(spec: ModuleSpec) -> ModuleType:
    assert spec.loader is not None, spec
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]  # as an import statement does: the next one must fail again
        raise
    return module


def _look_here() -> None:
    """A module beside the user must be found, also by the console script, whose path starts at its own folder."""
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)  # last: `random.py` of a user's folder must not replace the library's


def _find(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise  # the package around it is there, and imports something that is not


def _file_hint(name: str) -> str:
    path = Path(f"{name}{_SUFFIX}")
    return f"; for the file write -p {path}" if path.is_file() else ""
