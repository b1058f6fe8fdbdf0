"""Calibrations: kept, read again, and told when they are old."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError
from explorer.prediction import store
from explorer.prediction.calibration import Calibration, HeldOut, stale
from explorer.prediction.store import cache_folder, path_of, save, stored
from explorer.prediction.summary import figures


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    return tmp_path


def test_what_is_stored_is_read_again(calibration: Calibration, folder: Path) -> None:
    path = save(calibration)
    assert path.parent == folder / "calibrations"
    assert stored("A machine", 2) == calibration
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_another_device_or_number_of_threads_has_none(calibration: Calibration) -> None:
    save(calibration)
    assert stored("A machine", 4) is None
    assert stored("Another machine", 2) is None


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3-with-intel-r-xeon-r-cpu-2-00ghz-1threads.json"),
        ("Intel(R) Xeon(R) CPU @ 2.00GHz", "intel-r-xeon-r-cpu-2-00ghz-1threads.json"),
        ("../..", "with-intel-r-xeon-r-cpu-2-00ghz-1threads.json"),
    ],
)
def test_a_file_is_called_after_its_device_and_its_host(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "device_name", {"cpu": "Intel(R) Xeon(R) CPU @ 2.00GHz"}.__getitem__)
    assert path_of(name, 1).name == file


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EXPLORER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "architecture-explorer"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "architecture-explorer"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "no attribute"),
        ('{"schema": 1}', "its schema is 1, this version reads 2"),
        ('{"schema": 2, "dtypes": {}}', "it is no calibration"),
    ],
)
def test_a_file_that_is_none_is_told(text: str, reason: str) -> None:
    path = path_of("A machine", 2)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(MeasureError, match=reason) as caught:
        stored("A machine", 2)
    assert str(caught.value).startswith(f"{path}: the calibration cannot be read: ")
    assert str(caught.value).endswith("; run `explorer calibrate` again")


def test_a_folder_that_cannot_be_written_is_told(
    calibration: Calibration, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("EXPLORER_CACHE", str(folder / "file"))
    with pytest.raises(MeasureError, match=r"the calibration cannot be written: .*EXPLORER_CACHE names another folder"):
        save(calibration)


@pytest.mark.parametrize(
    ("torch_version", "today", "why"),
    [
        ("2.13.0", date(2026, 12, 1), None),
        ("2.13.0", date(2027, 3, 1), None),
        ("2.13.0", date(2027, 3, 2), "is 91 days old, more than 90"),
        ("2.14.0", date(2026, 12, 1), "was measured with torch 2.13.0, this is 2.14.0"),
    ],
)
def test_an_old_calibration_is_told(torch_version: str, today: date, why: str | None, calibration: Calibration) -> None:
    of = replace(calibration.dtypes["float32"], date="2026-12-01")
    newer = replace(of, date="2027-03-01")
    calibration = replace(calibration, torch="2.13.0", dtypes={"float32": of, "bfloat16": newer})
    said = stale(calibration, "float32", torch_version, today)
    assert said == (why and f"the calibration of A machine in float32 {why}: run `explorer calibrate` again")
    assert stale(calibration, "bfloat16", "2.13.0", today) is None


def test_errors_of_held_out_blocks() -> None:
    """Errors 10 %, 20 %, 5 %, 0 %; ratios within one workload only: 1.1 / 0.8, not 1.0 / 0.8."""
    blocks = {"a": (10.0, 11.0), "b": (10.0, 8.0), "c": (100.0, 95.0), "d": (2.0, 2.0)}
    short, long, decode = Workload("prefill", tokens=8), Workload("prefill", tokens=9), Workload("decode", context=9)
    found = HeldOut.of(blocks, {"a": short, "b": short, "c": long, "d": decode})
    assert found.median == pytest.approx(0.075)
    assert found.largest == pytest.approx(0.2)
    assert found.ratio == pytest.approx(1.1 / 0.8)
    assert found.phases == {"prefill": pytest.approx(0.1), "decode": 0}
    assert (found.error("decode"), found.error("train")) == (0, found.median)
    assert json.loads(json.dumps(found.blocks)) == {key: list(pair) for key, pair in blocks.items()}


def test_figures_are_what_the_machine_does(calibration: Calibration) -> None:
    found = {figure.what: (figure.value, figure.unit) for figure in figures(calibration)}
    gflops, unit = found["products, many tokens"]
    assert (gflops, unit) == (pytest.approx(100, rel=0.01), "GFLOP/s")
    assert found["weights, one token, from the memory"] == (pytest.approx(2, rel=0.02), "GB/s")
    assert found["copy, 1 MiB"] == (pytest.approx(10, rel=0.01), "GB/s")
    assert found["a tiny addition"] == (4.0, "µs")
    assert found["host: calling a module"] == (2.0, "µs")
    assert found["held-out blocks, decode: median error"] == (8.0, "%")
    assert found["samples that nothing disturbed"] == (100.0, "%")


def test_another_calibration_keeps_the_dtypes_that_it_did_not_measure(calibration: Calibration) -> None:
    of = calibration.dtypes["float32"]
    save(replace(calibration, dtypes={"float32": replace(of, clean=0.7), "float16": of}))
    save(replace(calibration, by="explorer 0.2.0"))
    found = stored("A machine", 2)
    assert found is not None
    assert found.dtypes == {"float32": of, "float16": of}
    save(replace(calibration, torch="2.14.0"))
    assert stored("A machine", 2) == replace(calibration, torch="2.14.0")


def test_a_calibration_that_cannot_be_read_is_replaced(calibration: Calibration) -> None:
    save(calibration).write_text("{")
    save(calibration)
    assert stored("A machine", 2) == calibration


@pytest.mark.parametrize(("clean", "fault"), [(0.5, None), (0.4, "only 40% of the samples were undisturbed")])
def test_times_that_were_disturbed_are_in_doubt(clean: float, fault: str | None, calibration: Calibration) -> None:
    of = replace(calibration.dtypes["float32"], clean=clean)
    assert (of.fault("prefill") or "").startswith(fault or "")
    assert (of.fault("prefill") is None) == (fault is None)


def test_a_phase_that_was_missed_leaves_the_other_alone(calibration: Calibration) -> None:
    met = replace(calibration.dtypes["float32"].held_out, phases={"prefill": 0.05, "decode": 0.6})
    of = replace(calibration.dtypes["float32"], held_out=met)
    assert of.fault("prefill") is None
    assert of.faults == ["held-out blocks in decode are off by 60% (median), more than 25%"]


def test_a_cpu_that_the_system_does_not_name_is_one_machine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ARM machine of a shared home may be called aarch64."""
    monkeypatch.setattr(store, "device_name", lambda device: "aarch64")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    found = set()
    for node in ("one", "other"):
        monkeypatch.setattr("platform.node", lambda node=node: node)
        found.add(path_of("aarch64", 4).name)
    assert found == {"aarch64-of-one-4threads.json", "aarch64-of-other-4threads.json"}
