"""A study of many rows: tables show the first ones, a folder holds all as a table, memory holds one at a time."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import polars
import pytest
import yaml
from typer.testing import Result

from explorer.cli.formats import SHOWN
from explorer.report.markdown import escaped

Explorer = Callable[..., Result]
ROWS = 48


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 40 rows were the most that are written as objects."""
    for module in ("result", "run"):
        monkeypatch.setattr(f"explorer.study.{module}.MANY", 40)


@pytest.fixture
def wide(study: Path) -> Path:
    text = study.read_text(encoding="utf-8").replace("explore: {", f"explore: {{seed: {list(range(ROWS // 4))}, ")
    study.write_text(text, encoding="utf-8")
    return study


def test_tables_show_the_first_rows_and_say_so(explorer: Explorer, wide: Path) -> None:
    for form, mark in (("table", ""), ("md", "- ")):
        text = explorer("run", wide, "--format", form, "--audit", 1).stdout
        assert f"{mark}shown: the first {SHOWN} of {ROWS} rows; --out DIR writes all as costs.parquet" in text
    assert len(re.findall(r"^\| \d+ \|", text, re.MULTILINE)) == SHOWN


def test_reasons_of_all_rows_stand_below_the_first_ones(explorer: Explorer, wide: Path, tmp_path: Path) -> None:
    """Half of the rows are skipped, and none of them takes the place of one that is counted."""
    text = wide.read_text(encoding="utf-8").replace("seed: [", f"seed: [{', '.join(map(str, range(100, 134)))}, ")
    wide.write_text(f"{text}skip: [{{attention: mha}}, {{norm: layernorm, seed: 5}}]\n", encoding="utf-8")
    rows = 4 * (34 + ROWS // 4)
    result = explorer("run", wide, "--audit", 0, "--out", tmp_path / "run", "--format", "md")
    assert "  - skip: attention: mha (92 rows)\n  - skip: norm: layernorm, seed: 5 (1 row)\n" in result.stdout
    counted = rows - 92 - 1
    file = tmp_path / "run" / "costs.parquet"
    assert f"- shown: the first {SHOWN} of {counted} rows; all are in {escaped(str(file))}\n" in result.stdout
    assert f"- combinations: {rows} in the product, {counted} rows, 93 skipped\n" in result.stdout
    assert len(re.findall(r"^\| \d+ \|", result.stdout, re.MULTILINE)) == SHOWN
    head = json.loads((tmp_path / "run" / "study.json").read_text(encoding="utf-8"))
    assert sum(one["rows"] for one in head["skipped_reasons"]) == head["counts"]["skipped"] == 93


def test_json_and_csv_hold_every_row(explorer: Explorer, wide: Path) -> None:
    document = json.loads(explorer("run", wide, "--format", "json", "--audit", 0).stdout)
    lines = list(csv.DictReader(io.StringIO(explorer("run", wide, "--format", "csv", "--audit", 0).stdout)))
    assert len(document["combinations"]) == ROWS
    assert "excerpt" not in document
    costs = [(row["id"], cost) for row in document["combinations"] for cost in row["costs"]]
    assert [(line["id"], line["scope"], int(line["moved_bytes"])) for line in lines] == [
        (identity, cost["scope"], cost["moved_bytes"]) for identity, cost in costs
    ]


def test_a_folder_holds_a_table_and_the_head(explorer: Explorer, wide: Path, toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert explorer("run", toy, "--out", folder).exit_code == 0
    result = explorer("run", wide, "--out", folder, "--audit", 0)
    assert result.exit_code == 0, result.stderr
    names = {path.name for path in folder.iterdir()}
    assert names == {"costs.parquet", "study.json", "blueprint.yaml", "options.yaml"}, (
        "of the run before nothing is left"
    )
    table = polars.read_parquet(folder / "costs.parquet")
    assert table["id"].n_unique() == ROWS
    head = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    assert head["counts"]["rows"] == ROWS
    assert "combinations" not in head
    assert yaml.safe_load((folder / "options.yaml").read_text(encoding="utf-8"))["audit"] == 0
    compared = explorer("compare", folder, toy)
    assert compared.exit_code == 2
    assert "too many rows to set side by side" in compared.stderr
