"""`explorer compare`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from explorer.study.comparing import MOST_BESIDE

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
    broken, old = (tmp_path / name for name in ("broken", "old"))
    for folder, text in ((broken, "nothing"), (old, "[]")):
        folder.mkdir()
        (folder / "result.json").write_text(text, encoding="utf-8")
    for arguments, message in (
        ((toy,), "two blueprints or runs at least"),
        ((toy, tmp_path / "nothing.yaml"), "no such file"),
        (
            (toy, tmp_path),
            f"error: {tmp_path}: this folder holds no result of `explorer run --out`; name a folder that",
        ),
        ((toy, broken), "result.json: no result of `explorer run --out`: Expecting value"),
        ((toy, old), "result.json: not a result of this version"),
    ):
        result = explorer("compare", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr


def test_options_do_not_change_a_finished_run(explorer: Explorer, toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    explorer("run", toy, "--out", folder)
    result = explorer("compare", folder, toy, "--set", "norm=layernorm", "--workload", "tokens=8", "--format", "json")
    assert result.exit_code == 0
    assert result.stderr == f"note: --set and --workload changed {toy}, not the finished runs {folder}\n"
    norms = [list(row["resolved"]["norm"]) for row in json.loads(result.stdout)["combinations"]]
    assert norms == [["rmsnorm"], ["layernorm"]]
    alone = explorer("compare", folder, folder, "--set", "nonsense=3")
    assert (alone.exit_code, alone.stdout) == (2, "")
    assert alone.stderr.startswith("error: --set: a finished run cannot be changed, and there is no blueprint among")
    assert explorer("compare", folder, toy).stderr == ""


@pytest.mark.parametrize(("seeds", "delta"), [("1,2,3", "Δ: against toy (1), seed=1"), ("1,2,3,4", "Δ: none: of more")])
def test_many_rows_say_that_none_is_the_baseline(
    explorer: Explorer, toy: Path, tmp_path: Path, seeds: str, delta: str
) -> None:
    """Two runs of three rows, and two of four: more than the help says."""
    explorer("run", toy, "--axis", f"seed={seeds}", "--out", tmp_path / "run", "--audit", 0)
    result = explorer("compare", tmp_path / "run", tmp_path / "run")
    assert delta in result.stdout
    assert ("Δ params" in result.stdout) is (seeds == "1,2,3")
    assert "of up to 6 rows the first is the baseline" in " ".join(explorer("compare", "--help").stdout.split())
    assert MOST_BESIDE == 6
