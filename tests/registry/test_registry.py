"""Components are found by name; a name that two packages offer is theirs with the package before it."""

import importlib.metadata

import pytest

from explorer.registry.kinds import KINDS
from explorer.registry.registry import NameProblem


def listing(registry):
    """What `plugins list` shows."""
    components = [(c.kind.name, c.label, str(c.origin)) for kind in KINDS for c in registry.components(kind)]
    return components, [(p.name, str(p.origin), p.location) for p in registry.packages], list(map(str, registry.broken))


def hints_for(registry, kind, name):
    with pytest.raises(NameProblem) as caught:
        registry.find(kind, name)
    return str(caught.value), caught.value.hints


@pytest.fixture
def clash(site, load):
    site.plugin("a_lab", site.norms("mine", "rmsnorm"), version="1.0")
    site.plugin("b_lab", site.norms("mine", "other"), version="2.0")
    return load()


def test_a_bare_name_of_two_packages_is_an_error_that_names_both(clash):
    message, lines = hints_for(clash, "norm", "mine")
    assert message == "two packages offer the norm 'mine': a_lab-dist 1.0 (a_lab) and b_lab-dist 2.0 (b_lab)"
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
    ("norm", "", "installed: batchnorm, dyt, l2norm, layernorm, mine, none, other, rmsnorm, scalenorm"),
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
