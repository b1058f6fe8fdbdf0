"""Plugin packages are loaded one by one; what is broken is told and stops nobody."""

import importlib
import importlib.metadata
import sys
from pathlib import Path

import pytest

from explorer import PluginError, UsageError
from explorer.registry.registry import NameProblem

BUILT_IN = {
    "explorer_activations",
    "explorer_attentions",
    "explorer_feedforwards",
    "explorer_norms",
    "explorer_positions",
    "explorer_residuals",
}


def listing(registry):
    """What `plugins list` shows."""
    from explorer.registry.kinds import KINDS

    components = [(c.kind.name, c.label, str(c.origin)) for kind in KINDS for c in registry.components(kind)]
    return components, [(p.name, str(p.origin), p.location) for p in registry.packages], list(map(str, registry.broken))


def reason(registry, name):
    (found,) = [broken for broken in registry.broken if broken.name == name]
    return found.reason


def hints_for(registry, kind, name):
    with pytest.raises(NameProblem) as caught:
        registry.find(kind, name)
    return str(caught.value), caught.value.hints


def test_built_in_packages_come_through_the_same_door(load):
    registry = load()
    assert {package.name for package in registry.packages} >= BUILT_IN
    assert registry.find("norm", "rmsnorm").origin.distribution == "architecture-explorer"
    assert not [broken for broken in registry.broken if broken.name in BUILT_IN]


def test_an_installed_package_is_found_with_its_distribution(site, load):
    site.plugin("lab", site.norms("labnorm"), version="2.1")
    registry = load()
    found = registry.find("norm", "labnorm")
    assert (found.package, found.distribution, found.version) == ("lab", "lab-dist", "2.1")
    assert found.origin.location == str(site.folder / "lab.py")
    assert registry.find("norm", "lab:labnorm") == found


# A broken package ----------------------------------------------------------------------------------------------------

IMPORT = "from explorer import hookimpl\n"
HOOK = "@hookimpl\ndef register_norms():\n    return "
BROKEN = {  # source of a module, parts of the reason
    "import lost_dependency\n": ("ModuleNotFoundError: No module named 'lost_dependency'", "bad.py:1)"),
    "from json import lost\n": ("ImportError: cannot import name 'lost'", "bad.py:1)"),
    "def f(:\n": ("SyntaxError: ", "bad.py:1)"),
    "\n\n1 / 0\n": ("ZeroDivisionError: division by zero", "bad.py:3)"),
    "import sys\nsys.exit('no licence')\n": ("SystemExit: no licence", "bad.py:2)"),
    "class Panic(BaseException): ...\nraise Panic('rust')": ("Panic: rust", "bad.py:2)"),
    "raise ValueError\n": ("ValueError:", "bad.py:1)"),
    "": ("it implements no hook", "register_norms"),
    "def register_norms():\n    return {}\n": ("it implements no hook; put @hookimpl above register_norms",),
    IMPORT + "@hookimpl\ndef register_norm(): ...": ("no hook register_norm, did you mean 'register_norms'?",),
    IMPORT + "@hookimpl\ndef zzz(): ...": ("there is no hook zzz; the hooks, none takes an argument: register_act",),
    IMPORT + "@hookimpl\ndef register_norms(path): ...": ("'bad'", "'register_norms'", "'path'", "none takes an argum"),
    IMPORT + "@hookimpl(wrapper=True)\ndef register_norms():\n    yield": ("hook register_norms is a wrapper",),
    IMPORT + HOOK + "1 / 0": ("hook register_norms failed: ZeroDivisionError", "bad.py:4)"),
    IMPORT + HOOK + "exit(3)": ("hook register_norms failed: SystemExit: 3", "bad.py:4)"),
    IMPORT + HOOK + "['rmsnorm']": ("must return a mapping of names to constructors, not list",),
    IMPORT + HOOK + "None": ("not NoneType",),
    IMPORT + HOOK + "{'none': None}": ("'none' has no constructor; only an attention or feedforward",),
    IMPORT + HOOK + "{'x': 'torch.nn.Identity'}": ("'x' is no constructor but str",),
    IMPORT + HOOK + "{3: print}": ("3 is no name",),
    IMPORT + HOOK + "{'': print}": ("'' is no name",),
    IMPORT + HOOK + "{'my norm': print}": ("'my norm' is no name: use letters, digits",),
    IMPORT + HOOK + "{'a:b': print}": ("'a:b' is no name",),
    IMPORT + HOOK + "{'a=b': print}": ("'a=b' is no name",),
    IMPORT + HOOK + "{'8bit': print}": ("'8bit' is no name",),
    IMPORT + HOOK + "{'größe': print}": ("'größe' is no name",),
    IMPORT + HOOK + "{'a\\n': print}": ("is no name",),
    IMPORT + HOOK + "{'Null': print}": ("'Null' is no name: YAML reads it as another value",),
    IMPORT + HOOK + "{'off': print}": ("'off' is no name",),
    IMPORT + HOOK + "{'x': lambda dim, eps: 0}": ("norm 'x' of bad-dist 1.0 (bad): parameter 'eps' stands left of *",),
    IMPORT + HOOK + "{'x': lambda dim, *, eps=1: 0}": ("parameter 'eps' has no annotation",),
    IMPORT
    + "a = hookimpl(specname='register_norms')(lambda: {'x': lambda dim: 0})\n"
    + "b = hookimpl(specname='register_norms')(lambda: {'x': lambda dim: 0})": ("it offers the norm 'x' 2 times",),
}


@pytest.mark.parametrize(("source", "parts"), BROKEN.items())
def test_a_broken_package_is_told_and_stops_nobody(source, parts, site, load):
    site.plugin("bad", source, version="0.3")
    site.plugin("good", site.norms("goodnorm"))
    registry = load()
    told = str(next(broken for broken in registry.broken if broken.name == "bad"))
    assert told.startswith("plugin package 'bad' of bad-dist 0.3 is broken: ")
    for part in parts:
        assert part.replace("bad-dist 1.0", "bad-dist 0.3") in told
    assert registry.find("norm", "goodnorm").package == "good"
    assert {package.name for package in registry.packages} >= {*BUILT_IN, "good"}


@pytest.mark.parametrize("names", [("a_half", "b_good"), ("b_half", "a_good")])
def test_components_of_a_hook_that_fails_half_way_do_not_exist(names, site, load):
    half, good = names
    site.plugin(half, site.norms("halfnorm") + "\n@hookimpl\ndef register_activations():\n    raise RuntimeError('x')")
    site.plugin(good, site.norms("goodnorm"))
    registry = load()
    assert "goodnorm" in registry.names("norm")
    assert "halfnorm" not in registry.names("norm")
    assert "hook register_activations failed: RuntimeError: x" in reason(registry, half)


def test_a_name_nobody_has_is_told_with_what_is_broken(site, load):
    site.plugin("bad", "1 / 0")
    message, lines = hints_for(load(), "norm", "rmsnrom")
    assert message == "no norm is called 'rmsnrom'"
    assert "did you mean 'rmsnorm'?" in lines
    assert any(line.startswith("plugin package 'bad' of bad-dist 1.0 is broken: ") for line in lines)
    assert any("reinstall" in line for line in lines)


def test_a_hook_from_a_later_version_may_be_optional(site, load):
    later = "\n@hookimpl(optionalhook=True)\ndef register_dreams():\n    return {}\n"
    site.plugin("lab", site.norms("labnorm") + later)
    assert load().find("norm", "labnorm").package == "lab"


def test_what_a_plugin_prints_is_not_on_standard_output(site, load, capsys):
    site.plugin("lab", "print('hello from lab')\n" + site.norms("labnorm"))
    load()
    out, err = capsys.readouterr()
    assert (out, "hello from lab" in err) == ("", True)


def test_an_interrupt_is_no_fault_of_a_plugin(site, load):
    site.plugin("bad", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load()


# Entry points --------------------------------------------------------------------------------------------------------


def test_two_distributions_with_one_entry_point_are_both_named(site, load):
    site.module("a_rope", site.norms("a"))
    site.module("b_rope", site.norms("b"))
    site.install("plugin-b", {"rope": "b_rope"}, "2.0")
    site.install("plugin-a", {"rope": "a_rope"}, "1.0")
    registry = load()
    assert "plugin-a 1.0 (a_rope) and plugin-b 2.0 (b_rope) register the same entry point" in reason(registry, "rope")
    assert {"a", "b"}.isdisjoint(registry.names("norm"))


def test_a_distribution_that_is_seen_twice_counts_once(site, load, monkeypatch):
    site.plugin("lab", site.norms("labnorm"), version="1.1")
    stale = site.folder / "lab_dist.egg-info"
    stale.mkdir()
    (stale / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: Lab.Dist\nVersion: 1.0\n")
    (stale / "entry_points.txt").write_text("[explorer]\nlab = lab\n")
    real = importlib.metadata.entry_points

    def twice(**selected):  # as a walk over distributions() sees it
        found = [p for d in importlib.metadata.distributions(path=[str(site.folder)]) for p in d.entry_points]
        return [*found, *real(**selected)]

    for entry_points in (real, twice):
        monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
        registry = load()
        assert [package.name for package in registry.packages if package.name.startswith("lab")] == ["lab"]
        assert registry.find("norm", "labnorm").package == "lab"
        assert not registry.broken


def test_one_module_under_two_names_of_its_distribution_counts_once(site, load):
    site.module("lab", site.norms("labnorm"))
    site.install("lab-dist", {"lab": "lab", "lab_old": "lab"})
    assert load().find("norm", "labnorm").package == "lab"


@pytest.mark.parametrize("name", ["my lab", "lab:norms", "8bit", "null", "[lab]"])
def test_an_entry_point_whose_name_no_blueprint_can_write(name, site, load):
    site.module("lab", site.norms("labnorm"))
    site.install("lab-dist", {name: "lab"})
    registry = load()
    assert "is no name" in "".join(broken.reason for broken in registry.broken)
    assert "labnorm" not in registry.names("norm")


VALUES = {  # value of an entry point, part of the reason
    "lost": "its metadata names the module 'lost', which is not there; reinstall lab-dist",
    "lost.norms": "its metadata names the module 'lost', which is not there; reinstall lab-dist",
    "lab.lost": "its metadata names the module 'lab.lost', which is not there; reinstall lab-dist",
    "lab:lost": "import of lab:lost failed: AttributeError",
    "folder": "the module 'folder', which has no file: a folder without __init__.py is no package; reinstall lab-dist",
    "not a module": "import of not a module failed",
    "lab:Norm": "it implements no hook",
}


@pytest.mark.parametrize(("value", "part"), VALUES.items())
def test_an_entry_point_that_leads_nowhere(value, part, site, load):
    (site.folder / "folder").mkdir()  # as a project is that bears the name of its package
    site.module("lab", site.norms("labnorm"))
    site.install("lab-dist", {"lab": value})
    assert part in reason(load(), "lab")


def test_an_entry_point_may_be_an_object_with_hooks(site, load):
    hooks = "class Plugin:\n    @hookimpl\n    def register_norms(self):\n        return {'objectnorm': Norm}\n"
    source = f"{site.norms('labnorm')}{hooks}plugin = Plugin()\n"
    site.module("lab", source)
    site.install("lab-dist", {"lab": "lab:plugin"})
    registry = load()
    assert registry.find("norm", "objectnorm").package == "lab"
    assert "labnorm" not in registry.names("norm")


@pytest.mark.parametrize("text", ["[explorer]\nno sign of equality\n", "\x00\xff", "lab = lab\n"])
def test_metadata_that_cannot_be_read_hides_no_other_package(text, site, load):
    site.plugin("good", site.norms("goodnorm"))
    site.install("garbled", text)
    registry = load()
    assert registry.find("norm", "goodnorm").package == "good"
    assert {package.name for package in registry.packages} >= BUILT_IN


def test_a_distribution_without_metadata_is_still_one(site, load):
    site.module("lab", site.norms("labnorm"))
    site.install("lab-dist", {"lab": "lab"}, metadata=False)
    registry = load()
    assert registry.find("norm", "rmsnorm").distribution == "architecture-explorer"
    assert "labnorm" in registry.names("norm") or any("lab" in broken.reason for broken in registry.broken)


def test_without_any_package_the_way_out_is_told(load, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **selected: [])
    with pytest.raises(PluginError, match="not even the built-in ones: run `pip install -e"):
        load()


# Two packages, one component -----------------------------------------------------------------------------------------


@pytest.fixture
def clash(site, load):
    site.plugin("a_lab", site.norms("mine", "rmsnorm"), version="1.0")
    site.plugin("b_lab", site.norms("mine", "other"), version="2.0")
    return load()


def test_a_bare_name_of_two_packages_is_an_error_that_names_both(clash):
    message, lines = hints_for(clash, "norm", "mine")
    assert message == "2 packages offer the norm 'mine': a_lab-dist 1.0 (a_lab) and b_lab-dist 2.0 (b_lab)"
    assert lines[0] == "write 'a_lab:mine' for the one of a_lab-dist 1.0"


def test_a_name_with_its_package_picks_one(clash):
    assert clash.find("norm", "b_lab:mine").version == "2.0"
    assert clash.find("norm", "b_lab:mine").label == "b_lab:mine"
    assert clash.find("norm", "b_lab:other").label == "other"


def test_a_component_that_repeats_a_built_in_name_overrides_nothing(clash):
    message, _ = hints_for(clash, "norm", "rmsnorm")
    assert "a_lab-dist 1.0 (a_lab) and architecture-explorer" in message
    assert clash.find("norm", "explorer_norms:rmsnorm").distribution == "architecture-explorer"


def test_a_clash_that_is_not_used_is_not_fatal(clash):
    assert clash.find("norm", "layernorm").label == "layernorm"
    assert [found[0].name for found in clash.clashes] == ["mine", "rmsnorm"]


UNKNOWN = [  # kind, name, one of the hints
    ("norm", "c_lab:mine", "there is no plugin package 'c_lab'"),
    ("norm", "c_lab:mine", "did you mean 'b_lab'?"),
    ("norm", "a_lab:other", "package 'b_lab' has one: write b_lab:other"),
    ("norm", "a_lab:rope", "package 'a_lab' has no norm of that name"),
    ("norm", "rope", "'rope' is of kind position (explorer_positions)"),
    ("norm", ":mine", "there is no plugin package ''"),
    ("norm", "", "installed: layernorm, mine, none, other, rmsnorm"),
]


@pytest.mark.parametrize(("kind", "name", "hint"), UNKNOWN)
def test_unknown_name(kind, name, hint, clash):
    message, lines = hints_for(clash, kind, name)
    assert message == f"no {kind} is called {name!r}"
    assert hint in lines


def test_order_of_loading_changes_nothing(site, load, monkeypatch):
    for name in ("a", "b", "c"):
        site.plugin(name, site.norms(f"{name}norm", "shared"))
    site.plugin("broken", "1 / 0")
    site.module("twin", site.norms("twin"))
    site.install("twin-x", {"twin": "twin"})
    site.install("twin-y", {"twin": "twin.y"})
    site.module("mine_1", site.norms("mine"))
    site.module("mine_2", site.norms("mine"))
    real = importlib.metadata.entry_points
    forwards = listing(load("mine_1", "mine_2"))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **selected: list(reversed(list(real(**selected)))))
    assert listing(load("mine_2", "mine_1")) == forwards


# -p ------------------------------------------------------------------------------------------------------------------


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
    assert listing(registry) == listing(load())
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


@pytest.mark.parametrize("how", ["bad", "./bad.py"])
@pytest.mark.parametrize(("source", "parts"), [*BROKEN.items()][::4])
def test_a_module_that_is_broken_is_an_error(source, parts, how, here, load):
    write(here, "bad.py", source)
    for _ in range(2):  # the second time it must not be found half imported
        with pytest.raises(PluginError) as caught:
            load(how)
        assert str(caught.value).startswith(f"-p {how}: ")
        for part in parts:
            assert part.replace("of bad-dist 1.0", f"of -p {how}") in str(caught.value)


def test_a_module_beside_the_user_replaces_no_library(here, site, load):
    write(here, "random.py", "1 / 0")
    write(here, "my_norms.py", "import random\nrandom.random()\n" + site.norms("mynorm"))
    assert load("my_norms").find("norm", "mynorm").package == "my_norms"


def test_what_is_broken_and_asked_for_by_name_is_an_error(site, load):
    site.plugin("bad", "1 / 0")
    with pytest.raises(PluginError, match="-p bad: import failed: ZeroDivisionError: division by zero"):
        load("bad")
