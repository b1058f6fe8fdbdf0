"""Modules that `-p` adds for one call."""

import importlib
import sys
from pathlib import Path

import pytest

from explorer import PluginError, UsageError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The user's working folder, which is not on the path."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(Path.cwd()))])
    return folder


def write(folder, name, source):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    importlib.invalidate_caches()
    return path


@pytest.mark.parametrize("name", ["my_norms", "my_norms.py", "./my_norms.py", "my_package/__init__.py", "my_package"])
def test_a_module_is_added_for_one_call(name, here, site, load):
    write(here, "my_norms.py", site.norms("mynorm"))
    write(here, "my_package/__init__.py", site.norms("mynorm"))
    found = load(name).find("norm", "mynorm")
    assert (found.package, str(found.origin)) == (Path(name).parent.name or Path(name).stem, f"-p {name}")
    assert Path(found.origin.location).is_relative_to(here)
    assert "mynorm" not in load().names("norm")


def test_a_file_may_lie_anywhere(here, site, load, tmp_path):
    path = write(tmp_path, "far/my-norms.py", site.norms("mynorm"))
    assert load(str(path)).find("norm", "mynorm").package == "my-norms"


def test_one_module_however_it_is_written_counts_once(here, site, load):
    write(here, "my_norms.py", site.norms("mynorm"))
    registry = load("my_norms", "./my_norms.py", "my_norms.py", "my_norms")
    assert registry.find("norm", "mynorm").label == "mynorm"


def test_a_package_that_is_installed_is_not_added_again(here, site, load):
    site.plugin("lab", site.norms("labnorm"))
    site.module("lab_core", site.norms("corenorm"))
    site.install("core-dist", {"core": "lab_core"})
    registry = load("lab", "lab_core", str(site.folder / "lab.py"), "explorer_norms")
    assert [p.origin for p in registry.packages] == [p.origin for p in load().packages]
    assert not registry.clashes
    assert registry.find("norm", "labnorm").distribution == "lab-dist"


def test_a_module_with_the_name_of_an_installed_package_is_refused(here, site, load):
    site.module("a_rope", site.norms("a"))
    site.install("plugin-a", {"rope": "a_rope"})
    write(here, "rope.py", site.norms("b"))
    with pytest.raises(PluginError, match=r"-p rope: plugin-a 1.0 has a package 'rope' too"):
        load("rope")


MISSING = {  # what is written after -p, message
    "lost_module": "-p lost_module: no module is called that, neither here nor installed",
    "lost.module": "-p lost.module: no module is called that",
    "json.lost": "-p json.lost: no module is called that",
    "lost.py": "-p lost.py: there is no such file",
    "folder": "-p folder: only a folder is called that, without an __init__.py",
    "./folder.py": "-p ./folder.py: there is no such file",
    "folder/": "-p folder/: write the name of a module or the path of a .py file",
    "./folder": "-p ./folder: write the name of a module",
    "": "-p : write the name of a module",
    "my-norms": "-p my-norms: write the name of a module or the path of a .py file; for the file write -p my-norms.py",
    "json.py": "another module is called 'json'",
    "torch.py": "another module is called 'torch'",
    "wave.py": "another module is called 'wave'",
}


@pytest.mark.parametrize(("name", "message"), MISSING.items())
def test_a_module_that_is_not_there_is_a_usage_error(name, message, here, site, load):
    for file in ("my-norms.py", "json.py", "torch.py", "wave.py"):
        write(here, file, site.norms("mynorm"))
    write(here, "folder.py/inner.py", "")
    write(here, "folder/inner.py", "")
    before = {name: sys.modules.get(name) for name in ("json", "torch", "wave")}
    with pytest.raises(UsageError) as caught:
        load(name)
    assert message in str(caught.value)
    assert {name: sys.modules.get(name) for name in before} == before


BROKEN = {  # source, parts of the message
    "import lost_dependency\n": ("import failed: ModuleNotFoundError: No module named 'lost_dependency'", "bad.py:1)"),
    "def f(:\n": ("import failed: SyntaxError: ", "bad.py:1)"),
    "raise SystemExit(3)\n": ("import failed: SystemExit: 3", "bad.py:1)"),
    "": ("it implements no hook; the hooks, none takes an argument: register_activations",),
    "from explorer import hookimpl\n@hookimpl\ndef register_norms():\n    1 / 0": (
        "hook register_norms failed: ZeroDivisionError: division by zero",
        "bad.py:4)",
    ),
}


@pytest.mark.parametrize("how", ["bad", "./bad.py"])
@pytest.mark.parametrize(("source", "parts"), BROKEN.items(), ids=[parts[0] for parts in BROKEN.values()])
def test_a_module_that_is_broken_is_an_error(source, parts, how, here, load):
    write(here, "bad.py", source)
    for _ in range(2):  # the second time it must not be found half imported
        with pytest.raises(PluginError) as caught:
            load(how)
        assert str(caught.value).startswith(f"-p {how}: {parts[0]}")
        assert all(part in str(caught.value) for part in parts)


def test_a_module_beside_the_user_replaces_no_library(here, site, load):
    write(here, "random.py", "1 / 0")
    write(here, "my_norms.py", "import random\nrandom.random()\n" + site.norms("mynorm"))
    assert load("my_norms").find("norm", "mynorm").package == "my_norms"


def test_what_is_broken_and_asked_for_by_name_is_an_error(site, load):
    site.plugin("bad", "1 / 0")
    with pytest.raises(PluginError, match="-p bad: import failed: ZeroDivisionError: division by zero"):
        load("bad")
