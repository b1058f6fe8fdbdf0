"""What fails in a comparison stands with its rows, whatever else has times."""

from dataclasses import replace

import pytest

from explorer.errors import MeasureError
from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.report.rows import rows_of
from explorer.report.timing import timing_columns
from explorer.study import sitting
from explorer.study.run import run

STUDY = {
    "dim": 32,
    "heads": 4,
    "workloads": [{"phase": "prefill", "tokens": 8}],
    "explore": {"norm": ["layernorm", "rmsnorm"]},
}


@pytest.fixture
def measured(monkeypatch):
    """`run(**options)` in which what `fails(recipe, impl)` says why of has no times; all else takes 1 ms."""

    def measure(fails, **options):
        monkeypatch.setattr(sitting, "measure_job", lambda job, **_: [_process(job, fails)])
        return run(STUDY, audit=0, device="cpu", **{"measure": True, **options})

    return measure


def _process(job, fails):
    lanes = [(recipe, impl) for recipe in job.recipes for impl in job.impls]
    failed = tuple(Failed(recipe.key, why, impl) for recipe, impl in lanes if (why := fails(recipe, impl)))
    tracks = tuple(
        Track(Lane(recipe.key, impl, "host"), (1.0,) * 12, first_call_ms=5.0, warmup=3, calls=2)
        for recipe, impl in lanes
        if not fails(recipe, impl)
    )
    return Process(0, tracks, (None,) * 12, "a guard", {"device_name": "a device", "threads": 1}, failed=failed)


def no_compiler(recipe, impl):
    return "not compiled: no g++" if impl == "compile" else None


def test_an_implementation_that_was_asked_for_and_failed_is_an_error(measured):
    result = measured(no_compiler, impls=("eager", "compile"))
    assert result.failed
    for row in result.rows:
        assert row["error"] == "block: compile: not compiled: no g++"
        eager, compiled = row["costs"][0]["latencies"]
        assert (eager["impl"], eager["median_ms"]) == ("eager", 1.0)
        assert (compiled["impl"], compiled["median_ms"]) == ("compile", None)
        assert compiled["reason"] == "not compiled: no g++"


def test_of_parts_too(measured):
    result = measured(no_compiler, impls=("eager", "compile"), measure="parts")
    assert result.failed
    sums = [entry for entry in result.rows[0]["costs"][0]["latencies"] if entry.get("of") == "parts"]
    assert [(entry["impl"], entry["median_ms"] is None) for entry in sums] == [("eager", False), ("compile", True)]
    assert "compile" in result.rows[0]["error"]


def test_a_whole_block_that_failed_beside_parts_is_an_error(measured):
    result = measured(lambda recipe, impl: None if recipe.piece else "out of memory", measure="parts")
    assert result.failed
    for row in result.rows:
        assert row["error"] == "block: as a whole: out of memory"
        assert row["costs"][0]["latency"]["of"] == "parts"
        assert row["costs"][0]["latency"]["median_ms"] == 3.0


def test_a_regime_alone_that_failed_is_no_error(monkeypatch):
    """As a step that no CUDA graph holds: the implementation has times, and the entry says why this one has none."""

    def measure_job(job, **_):
        lost = tuple(Failed(recipe.key, "no CUDA graph holds it", "eager", "device") for recipe in job.recipes)
        yield replace(_process(job, lambda *_: None), failed=lost)

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    result = run(STUDY, audit=0, device="cpu", measure=True)
    assert not result.failed
    assert [entry["reason"] for entry in result.rows[0]["costs"][0]["latencies"]][1] == "no CUDA graph holds it"


def test_all_blocks_and_workloads_are_told(monkeypatch, measured):
    two = [{"phase": "prefill", "tokens": 8}, {"phase": "decode", "context": 8}]
    monkeypatch.setitem(STUDY, "workloads", two)
    result = measured(lambda recipe, impl: f"no room for {recipe.workload['phase']}")
    assert result.rows[0]["error"] == "block: no room for prefill; block: no room for decode"
    result = measured(lambda recipe, impl: "no room")
    assert result.rows[0]["error"] == "block: no room"


@pytest.mark.parametrize("which", ["all", "parts"])
def test_what_was_not_reached_stands_beside_what_failed(monkeypatch, which):
    """The prefill has no times; for the decode no process can be started."""
    two = [{"phase": "prefill", "tokens": 8}, {"phase": "decode", "context": 8}]
    monkeypatch.setitem(STUDY, "workloads", two)

    def measure_job(job, **_):
        if job.recipes[0].workload["phase"] == "decode":
            raise MeasureError("no worker")
        yield _process(job, lambda *_: "no room")

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    document = run(STUDY, audit=0, device="cpu", measure=which).to_dict()
    for row in document["combinations"]:
        assert row["error"].startswith("block: ")
        assert "no room" in row["error"]
        assert row["error"].endswith("; block: no worker")
        assert [cost["latency"].get("of") for cost in row["costs"]] == [None if which == "all" else "parts"] * 2


def test_a_sum_that_was_not_reached_failed_in_the_column_of_sums(monkeypatch):
    """Of two blocks in one table the second finds no worker."""
    jobs = []

    def measure_job(job, **_):
        jobs.append(job)
        if len(jobs) > 1:
            raise MeasureError("no worker")
        yield _process(job, lambda *_: None)

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    study = {**STUDY, "vocab": 8, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    document = run(study, audit=0, device="cpu", measure="parts").to_dict()
    shown = rows_of(document, document["combinations"][0]["costs"][0]["workload"])
    columns = {column.header: column.cells for column in timing_columns(shown, compared=False)}
    assert columns["block latency ms, sum of parts"] == ("3.000", "failed", "3.000", "failed")
