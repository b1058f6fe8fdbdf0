"""Plugin packages are loaded one by one; what is broken is told and stops nobody."""

import pytest

from explorer.registry.registry import NameProblem

BUILT_IN = {
    "explorer_activations",
    "explorer_attentions",
    "explorer_feedforwards",
    "explorer_norms",
    "explorer_positions",
    "explorer_residuals",
}


def reason(registry, name):
    (found,) = [broken for broken in registry.broken if broken.name == name]
    return found.reason


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


@pytest.mark.parametrize(("source", "parts"), BROKEN.items(), ids=[parts[0] for parts in BROKEN.values()])
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
    with pytest.raises(NameProblem, match="no norm is called 'rmsnrom'") as caught:
        load().find("norm", "rmsnrom")
    lines = caught.value.hints
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
