"""Predicted entries stand behind measured ones and never in their place."""

import re
from dataclasses import replace
from datetime import date

import pytest
import torch

from explorer.blueprint.load import load
from explorer.errors import MeasureError, UsageError
from explorer.registry.loading import load_registry
from explorer.report.rows import rows_of
from explorer.report.timing import timing_columns
from explorer.study import predicting
from explorer.study.run import run
from tests.prediction.machine import Machine, calibrated

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


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"torch": "2.0.0"}, rf"was measured with torch 2\.0\.0, this is {re.escape(torch.__version__)}"),
        ({"day": "2020-01-01"}, r"is \d{4,} days old, more than 90"),
    ],
)
def test_an_old_calibration_is_told(changes, why):
    table = predicting.targets(["l4"], load_registry(), None)
    assert predicting.stale_notes(table) == []
    (note,) = predicting.stale_notes({**table, "local": machine(**changes)})
    assert re.fullmatch(f"the calibration of A machine in float32 {why}: run `explorer calibrate` again", note)
    assert predicting.stale_notes({"local": machine()}) == []


def machine(torch=torch.__version__, day=None):
    """A calibration of today, with this torch."""
    found = calibrated(Machine().rates())
    dtypes = {name: replace(of, date=day or date.today().isoformat()) for name, of in found.dtypes.items()}
    return replace(found, torch=torch, dtypes=dtypes)


def test_an_equal_block_of_several_rows_is_traced_once(monkeypatch):
    """Each row has a plan of its own; the number of layers changes no block, the activation does."""
    traced = []

    def rows_of(plan, block, *about):
        traced.append(plan)
        return real(plan, block, *about)

    real = predicting.rows_of
    monkeypatch.setattr(predicting, "rows_of", rows_of)
    study = {**STUDY, "explore": {"activation": ["gelu", "swiglu"], "layers": [1, 2, 3]}}
    rows = run(study, audit=0, hardware=["l4"]).to_dict()["combinations"]
    assert (len(rows), len(traced)) == (6, 2)
    times = [row["costs"][0]["latency"]["median_ms"] for row in rows]
    assert times[0] == times[1] == times[2] != times[3] == times[4] == times[5]


DECODE = {**STUDY, "explore": {}, "workloads": [{"phase": "decode", "context": 16, "dtype": "float32"}], "dim": 256}


@pytest.mark.parametrize("cache", ["cold weights", "cold weights + warm"])
def test_of_many_entries_the_first_that_says_where_weights_lay_is_followed(cache):
    """What failed, an overwritten cache, what was rotated, a norm in it or not; alone a prefill is predicted warm."""
    prefill = {**DECODE, "workloads": STUDY["workloads"]}
    silent = [{"median_ms": None}, {"cache": "cold weights"}, {"cache": "cold", "copies": 1}]
    rotated = {"cache": cache, "copies": 9}
    assert predicted_beside(*silent, study=prefill)["cache"] == "warm"
    assert predicted_beside(*silent, rotated, study=prefill)["cache"] == "cold weights"


@pytest.mark.parametrize(
    ("beside", "cache"),
    [
        (None, "cold weights"),
        ({"cache": "warm", "copies": 1}, "warm"),
        ({"cache": "cold weights", "copies": 40}, "cold weights"),
        ({"cache": "cold", "copies": 1}, "cold weights"),
        ({"cache": "warm", "device": "another"}, "cold weights"),
    ],
)
def test_a_prediction_is_of_what_was_measured_beside_it(beside, cache):
    found, alone = predicted_beside(*([beside] if beside else [])), predicted_beside()
    assert found["cache"] == cache
    assert (found["median_ms"] < alone["median_ms"]) is (cache == "warm")


def predicted_beside(*measured, study=DECODE):
    """The entry of one block, whose weights fit in the nearest cache."""
    blueprint = load(study)
    (row,) = run(blueprint, audit=0).to_dict()["combinations"]
    plans = {one.id: one.plan for one in blueprint.combinations().rows}
    row["costs"][0]["latencies"] = [{"source": "measured", "device": "A machine", **entry} for entry in measured]
    predicting.predict_rows([row], plans, {"local": machine()}, {}, lambda *_: None)
    return row["costs"][0]["latencies"][-1]


def test_what_cannot_be_traced_says_what_it_would_rest_on(monkeypatch):
    def rows_of(*_):
        raise MeasureError("not predicted: it reads values")

    monkeypatch.setattr(predicting, "rows_of", rows_of)
    (row, _) = run(STUDY, audit=0, hardware=["l4"]).to_dict()["combinations"]
    entry = row["costs"][0]["latency"]
    assert (entry["device"], entry["regime"], entry["median_ms"]) == ("l4", "throughput", None)
    assert entry["reason"] == "not predicted: it reads values"
    assert entry["basis"].startswith("estimate: data sheet")
    assert not entry["validated"]
