"""Entry points in the metadata of what is installed: who is found, once, and who cannot be told apart."""

import importlib.metadata

import pytest

from explorer import PluginError


def reason(registry, name):
    (found,) = [broken for broken in registry.broken if broken.name == name]
    return found.reason


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
    assert "explorer_norms" in {package.name for package in registry.packages}


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
