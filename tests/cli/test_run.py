"""`explorer run`: four formats of one result, a folder of files, errors before work."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

Explorer = Callable[..., Result]


def test_formats_agree(explorer: Explorer, study: Path) -> None:
    table, markdown, text, lines = (explorer("run", study, "--format", form) for form in ("table", "md", "json", "csv"))
    assert [r.exit_code for r in (table, markdown, text, lines)] == [0] * 4
    document = json.loads(text.stdout)
    assert document["counts"] == {"product": 4, "rows": 4, "skipped": 0, "merged": 0}
    assert list(document["axes"]) == ["norm", "attention"]
    rows = [row for row in csv.DictReader(io.StringIO(lines.stdout)) if row["scope"] == "model"]
    assert [int(row["params"]) for row in rows] == [row["params"]["model"] for row in document["combinations"]]
    for row in document["combinations"]:
        assert f"{row['params']['model']:,}" in table.stdout
        assert f"{row['params']['model']:,}" in markdown.stdout
    assert "baseline" in table.stdout
    assert "not measured" in table.stdout


def test_options_change_the_blueprint(explorer: Explorer, toy: Path) -> None:
    options = ["--set", "layers=3", "--axis", "attention=mha,gqa:kv_heads=2", "--workload", "phase=decode,context=16"]
    result = explorer("run", toy, *options, "--format", "json")
    document = json.loads(result.stdout)
    assert document["axes"] == {"attention": ["mha", "gqa:kv_heads=2"]}
    first = document["combinations"][0]
    assert first["params"]["blocks"][0]["layers"] == 3
    assert {(c["workload"]["phase"], c["workload"]["context"]) for c in first["costs"]} == {("decode", 16)}


def test_a_blueprint_from_standard_input(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", "-", "--format", "json", stdin=toy.read_text(encoding="utf-8"))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["counts"]["rows"] == 1


def test_measure_on_the_cpu(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", toy, "--measure", "--effort", "quick", "--device", "cpu", "--format", "json")
    assert result.exit_code == 0, result.stderr
    latencies = [c["latency"] for c in json.loads(result.stdout)["combinations"][0]["costs"] if c["scope"] == "block"]
    assert all(latency["source"] == "measured" and latency["median_ms"] > 0 for latency in latencies)


DEVICE = "note: --device matters only with --measure or --hardware local\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--device", "cpu"], DEVICE),
        (["--device", "cpu", "--hardware", "l4"], DEVICE),
        (["--impl", "compile"], "note: --impl matters only with --measure\n"),
        (
            ["--effort", "publish", "--cache", "flush", "--resume", "--hardware", "l4"],
            "note: --effort and --cache and --resume matter only with --measure\n",
        ),
        (["--hardware", "l4"], ""),
    ],
)
def test_options_that_do_nothing_are_named(explorer: Explorer, toy: Path, options: list[str], told: str) -> None:
    result = explorer("run", toy, *options)
    assert (result.exit_code, result.stderr) == (0, told)


def test_latency_is_predicted_beside_the_counts(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", toy, "--hardware", "h100-sxm,l4", "--format", "json")
    block, _ = json.loads(result.stdout)["combinations"][0]["costs"]
    assert [(one["source"], one["device"]) for one in block["latencies"]] == [
        ("predicted", "h100-sxm"),
        ("predicted", "l4"),
    ]


def test_csv_says_what_it_has_no_room_for(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", toy, "--hardware", "h100-sxm,l4", "--format", "csv")
    assert result.stderr == "note: --format csv shows the first latency of each cost; 1 more stands in json\n"


def test_out_writes_a_folder_that_runs_again(explorer: Explorer, study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    result = explorer("run", study, "--set", "dim=32", "--out", folder, "--format", "json")
    assert result.exit_code == 0, result.stderr
    names = {"result.json", "blueprint.yaml", "options.yaml", "table.md", "table.csv"}
    assert {path.name for path in folder.iterdir()} == names
    assert json.loads((folder / "result.json").read_text(encoding="utf-8")) == json.loads(result.stdout)
    assert yaml.safe_load((folder / "options.yaml").read_text(encoding="utf-8"))["set"] == ["dim=32"]
    again = json.loads(explorer("run", folder / "blueprint.yaml", "--format", "json").stdout)
    first = json.loads(result.stdout)
    assert [row["params"] for row in again["combinations"]] == [row["params"] for row in first["combinations"]]
    assert again["counts"] == first["counts"]


def test_out_is_refused_before_the_work(
    explorer: Explorer, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the work started")

    monkeypatch.setattr("explorer.run", never)
    for folder in (toy, toy / "below", tmp_path / ("x" * 300)):
        result = explorer("run", toy, "--out", folder)
        assert result.exit_code == 2
        assert f"--out {folder}: cannot write there" in result.stderr


def test_a_wrong_blueprint_leaves_no_folder(explorer: Explorer, toy: Path, tmp_path: Path) -> None:
    result = explorer("run", toy, "--set", "heads=3", "--out", tmp_path / "new" / "run")
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()


def test_work_that_fails_leaves_no_folder(
    explorer: Explorer, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("explorer.run", broken)
    result = explorer("run", toy, "--out", tmp_path / "new" / "run")
    assert result.exit_code == 1
    assert "error in explorer itself: RuntimeError: a bug (--debug shows where)" in result.stderr
    assert not (tmp_path / "new").exists()


def test_a_failed_measurement_is_exit_1_and_still_a_result(
    explorer: Explorer, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import explorer as package

    counted = package.run(package.load(toy)).to_dict()
    counted["combinations"][0]["error"] = "block: out of memory while measuring"

    monkeypatch.setattr("explorer.run", lambda *_, **__: package.Result(counted))
    result = explorer("run", toy, "--measure")
    assert result.exit_code == 1
    assert "failed: block: out of memory while measuring" in result.stdout


WRONG = [
    (["--set", "nrom=layernorm"], "nrom"),
    (["--set", "heads=3"], "3"),
    (["--axis", "attention"], "--axis PATH=VALUE"),
    (["--workload", "phase=fly"], "phase"),
    (["--effort", "huge"], "--effort"),
    (["--format", "pdf"], "--format"),
    (["--limit", "0"], "--limit"),
    (["--measure", "--device", "abacus"], "abacus"),
    (["-p", "no_such_module"], "no_such_module"),
    (["--axis", "norm=rmsnorm,layernorm", "--axis", "bias=true,false", "--limit", "3"], "--limit"),
    (["--audit", "-1"], "--audit"),
    (["--measure="], "--measure= is empty; it takes all, parts, pareto or a number of rows"),
    (["--hardware", ","], "--hardware is empty; name a device at least, such as h100-sxm, or local"),
    (["--hardware", ""], "--hardware is empty"),
    (["--measure", "--impl", ","], "no impl is named"),
    (["--axis", f"seed={','.join(map(str, range(1001)))}", "--hardware", "l4"], "these are 1,001; it takes 1,000 rows"),
    (["--axis", f"seed={','.join(map(str, range(201)))}", "--crosscheck"], "these are 201; it takes 200 at most"),
]


@pytest.mark.parametrize(("options", "part"), WRONG)
def test_wrong_input_is_exit_2_without_a_traceback(
    explorer: Explorer, toy: Path, options: list[str], part: str
) -> None:
    result = explorer("run", toy, *options)
    assert result.exit_code == 2
    assert part in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_debug_shows_the_traceback(explorer: Explorer, toy: Path) -> None:
    result = explorer("run", toy, "--set", "heads=3", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_interrupt_is_quiet(explorer: Explorer, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("explorer.run", interrupted)
    result = explorer("run", toy)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")
