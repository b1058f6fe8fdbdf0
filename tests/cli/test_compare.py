"""`explorer compare`."""

from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Explorer = Callable[..., Result]


def test_blueprints_side_by_side(explorer: Explorer, toy: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(f"base: {toy}\nnorm: layernorm\n", encoding="utf-8")
    result = explorer("compare", toy, other)
    assert result.exit_code == 0, result.stderr
    assert "other" in result.stdout
    assert "differences:" in result.stdout
    assert "norm.layernorm.bias: null | true" in result.stdout


def test_runs_and_blueprints_mix(explorer: Explorer, toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert explorer("run", toy, "--out", folder).exit_code == 0
    result = explorer("compare", folder, toy, "--format", "csv")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].startswith("id,label,choices.blueprint")


def test_what_cannot_be_compared_is_said(explorer: Explorer, toy: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ((toy,), "two blueprints or runs at least"),
        ((toy, tmp_path / "nothing.yaml"), "no such file"),
        ((toy, tmp_path), "no result of a run"),
    ):
        result = explorer("compare", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
