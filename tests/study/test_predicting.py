"""Predicted entries stand behind measured ones and never in their place."""

import pytest

from explorer.errors import UsageError
from explorer.prediction.calibration import Calibration
from explorer.report.rows import rows_of
from explorer.report.timing import timing_columns
from explorer.study import predicting
from explorer.study.run import run

STUDY = {
    "dim": 64,
    "heads": 4,
    "explore": {"norm": ["layernorm", "rmsnorm"]},
    "workloads": [{"phase": "prefill", "tokens": 16, "dtype": "float32"}],
}


@pytest.fixture(scope="module")
def document():
    return run(STUDY, audit=0, hardware=["h100-sxm", "l4"]).to_dict()


def test_each_block_has_an_entry_for_each_device(document):
    for row in document["combinations"]:
        entries = row["costs"][0]["latencies"]
        assert [entry["device"] for entry in entries] == ["h100-sxm", "l4"]
        assert {entry["source"] for entry in entries} == {"predicted"}
        assert all(entry["low_ms"] < entry["median_ms"] < entry["high_ms"] for entry in entries)
        assert all(not entry["validated"] and "not validated" in entry["reason"] for entry in entries)
        assert row["costs"][0]["latency"] == entries[0]


def test_tables_never_mix_measured_and_predicted(document):
    measured = {"source": "measured", "device": "cpu", "impl": "eager", "regime": "host", "median_ms": 3.5}
    span = {"low_ms": 3.4, "high_ms": 3.6, "ratio": None, "verdict": None}
    first = document["combinations"][0]["costs"][0]
    costs = [{**first, "latencies": [{**measured, **span}, *first["latencies"]], "latency": {**measured, **span}}]
    rows = [{**document["combinations"][0], "costs": costs}, document["combinations"][1]]
    changed = {**document, "combinations": rows}
    columns = {
        column.header: column.cells for column in timing_columns(rows_of(changed, first["workload"]), compared=False)
    }
    assert columns["latency ms"] == ("3.500", "not measured")
    assert all(cell != "3.500" for header, cells in columns.items() if "predicted" in header for cell in cells)
    assert [header for header in columns if "predicted" in header] == ["predicted ms, h100-sxm", "predicted ms, l4"]


def test_an_unknown_device_is_told_before_the_work():
    with pytest.raises(UsageError, match=r"hardware 'h100' is not in the table; did you mean 'h100-sxm'\?"):
        run(STUDY, hardware=["h100"])


def test_this_device_must_be_calibrated(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"hardware 'local': .* is not calibrated; run `explorer calibrate`"):
        run(STUDY, hardware=["local"], device="cpu")


def test_what_cannot_be_predicted_has_its_reason():
    study = {**STUDY, "workloads": [{"phase": "prefill", "tokens": 16, "dtype": "float64"}]}
    (entry,) = run(study, audit=0, hardware=["h100-sxm"]).to_dict()["combinations"][0]["costs"][0]["latencies"]
    assert (entry["median_ms"], entry["source"]) == (None, "predicted")
    assert "no peak of h100-sxm in float64" in entry["reason"]


def test_an_old_calibration_is_told(monkeypatch):
    old = Calibration.__new__(Calibration)
    monkeypatch.setattr(predicting, "stale", lambda *_: "calibrated with torch 2.11.0")
    assert predicting.stale_notes({"local": old}) == ["calibrated with torch 2.11.0"]
