"""`explorer plugins list | show` and `explorer doctor`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from explorer.registry import load_registry
from explorer.registry.registry import Broken, CostRule, Origin, Package, Registry

Explorer = Callable[..., Result]

LAB = '''
from torch import nn
from explorer import hookimpl

class Lab(nn.Module):
    """x, unchanged."""

    def __init__(self, dim: int, *, gain: float, steps: int = 3):
        super().__init__()

@hookimpl
def register_norms():
    return {"lab_norm": Lab, "rmsnorm": Lab}
'''


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plugin module; one of its names is also that of a built-in norm."""
    (tmp_path / "lab_plugin_for_cli.py").write_text(LAB, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_registry.cache_clear()
    return "lab_plugin_for_cli"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry with one broken package."""
    origin = Origin("lab_broken", "lab-broken", "0.3")
    registry = Registry(load_registry().packages, (Broken(origin, "ImportError: no module\nnamed numpyy"),))
    for module in ("explorer.registry", "explorer.blueprint.load"):
        monkeypatch.setattr(f"{module}.load_registry", lambda modules=(): registry)


def test_list_shows_where_each_component_comes_from(explorer: Explorer) -> None:
    result = explorer("plugins", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert ["norm", "rmsnorm", "explorer_norms"] in map(str.split, lines)
    assert any(line.split()[:2] == ["explorer_norms", "architecture-explorer"] for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 400])
def test_list_is_as_wide_as_the_terminal(
    explorer: Explorer, broken: None, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A path alone may be longer, and stands below its package where it has no room."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = explorer("plugins", "list").stdout
    (package,) = [package for package in load_registry().packages if package.name == "explorer_norms"]
    paths = [line for line in text.splitlines() if line.startswith("  /")]
    assert [line for line in text.splitlines() if len(line) > columns and line not in paths] == []
    assert package.location in text
    assert ("location" in text) is (columns == 400)
    assert "ImportError: no module named numpyy" in " ".join(text.split())


def test_list_shows_broken_packages_and_doubled_names(explorer: Explorer, broken: None) -> None:
    result = explorer("plugins", "list")
    assert result.exit_code == 0
    assert "lab-broken 0.3  ImportError: no module named numpyy" in result.stdout


def test_a_doubled_name_is_a_warning_where_it_is_not_used(explorer: Explorer, lab: str, toy: Path) -> None:
    result = explorer("run", toy, "--set", "norm=layernorm", "-p", lab)
    assert result.exit_code == 0, result.stderr
    assert "warning: norm 'rmsnorm' is offered by" in result.stderr
    assert f"write explorer_norms:rmsnorm or {lab}:rmsnorm" in result.stderr


def test_a_broken_package_is_a_warning(explorer: Explorer, broken: None, toy: Path) -> None:
    result = explorer("run", toy)
    assert result.exit_code == 0, result.stderr
    assert "warning: plugin package 'lab_broken' of lab-broken 0.3 is broken" in result.stderr


def test_show_describes_a_component(explorer: Explorer, lab: str) -> None:
    result = explorer("plugins", "show", "lab_norm", "-p", lab)
    assert result.exit_code == 0
    for part in ("x, unchanged.", "from the block: dim", "gain: float (required)", "steps: int (default 3)"):
        assert part in result.stdout
    assert "in a blueprint: norm: {lab_norm: {gain: ...}}" in result.stdout


SHOWN = [("none", ["norm none", "attention none", "residual none"]), ("norm:none", ["norm none"])]


@pytest.mark.parametrize(("name", "heads"), [*SHOWN, ("explorer_norms:none", ["norm none"])])
def test_show_finds_by_name_kind_and_package(explorer: Explorer, name: str, heads: list[str]) -> None:
    shown = [line.partition(",")[0] for line in explorer("plugins", "show", name).stdout.splitlines()]
    assert [line for line in shown if line.endswith(" none") and not line.startswith(" ")][: len(heads)] == heads


def test_show_prints_source_limits_and_cost_of_one(explorer: Explorer) -> None:
    shown = explorer("plugins", "show", "attention:gqa:kv_heads=2", "--dim", "64", "--heads", "4", "--tokens", "16")
    assert shown.exit_code == 0, shown.stderr
    for part in (
        "sources: https://arxiv.org/abs/2305.13245",
        "kv_heads: int >= 1 (required)",
        "cost of one gqa:kv_heads=2 at dim 64, heads 4, 16 tokens, bfloat16:",
        f"parameters: {2 * 64 * 64 + 2 * 64 * 32:,}",
        "cache, bytes a token: 128;",
    ):
        assert part in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.split("sources:")[0].splitlines())


def test_show_asks_for_what_its_cost_needs(explorer: Explorer) -> None:
    assert "give what is required, explorer plugins show gqa:kv_heads=..." in explorer("plugins", "show", "gqa").stdout
    wrong = explorer("plugins", "show", "gqa:kv_head=2")
    assert wrong.exit_code == 2
    assert "did you mean 'kv_heads'?" in wrong.stderr


def test_show_unknown_suggests(explorer: Explorer) -> None:
    result = explorer("plugins", "show", "rmsnrom")
    assert result.exit_code == 2
    assert result.stderr == "error: no component is called 'rmsnrom'; did you mean 'rmsnorm'?\n"


def test_doctor_is_content_with_this_installation(explorer: Explorer) -> None:
    result = explorer("doctor")
    assert result.exit_code == 0, result.stdout
    for part in ("ok      torch ", "cpu, ", "explorer_norms (architecture-explorer "):
        assert part in result.stdout


def test_doctor_says_what_to_do(explorer: Explorer, broken: None) -> None:
    result = explorer("doctor")
    assert result.exit_code == 1
    assert "broken  lab_broken (lab-broken 0.3): ImportError: no module named numpyy" in result.stdout
    assert "mend, upgrade or uninstall lab-broken" in result.stdout


def test_cost_rules_of_two_packages_are_a_warning(
    explorer: Explorer, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that calls the operator is refused; until then everything works."""
    labs = [Origin("lab_a", "lab-a", "1.0"), Origin("lab_b", "lab-b", "2.0")]
    rules = [Package(lab, (), cost_rules=(CostRule("lab::mix", print, lab),)) for lab in labs]
    registry = Registry((*load_registry().packages, *rules))
    for module in ("explorer.registry", "explorer.blueprint.load"):
        monkeypatch.setattr(f"{module}.load_registry", lambda modules=(): registry)
    said = "cost rule for 'lab::mix' is offered by lab-a 1.0 (lab_a) and lab-b 2.0 (lab_b)"
    result = explorer("run", toy)
    assert result.exit_code == 0
    assert f"warning: {said}; uninstall all but one" in result.stderr
    assert f"warning: {said}" in " ".join(explorer("plugins", "list").stdout.split())
    assert said in " ".join(explorer("doctor").stdout.split())
