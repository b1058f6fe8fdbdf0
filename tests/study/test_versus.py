"""Two blueprints, one verdict: what is timed is faked, so that the verdict is known."""

from dataclasses import replace

import pytest

from explorer.blueprint.load import load
from explorer.errors import UsageError
from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.report.versus import versus_text
from explorer.study import sitting
from explorer.study.measuring import Measuring
from explorer.study.versus import versus

SEVERAL = {"blocks": {"x": {}, "y": {}}, "layers": ["x", "y"]}
WORKLOAD = {"phase": "prefill", "tokens": 8, "dtype": "float32"}


def design(name, **changes):
    return load({"name": name, "dim": 32, "heads": 4, "workloads": [WORKLOAD], **changes})


def quiet(stage, done, total):
    pass


@pytest.fixture
def timed(monkeypatch):
    """The baseline and its clone take 1 ms, the other 1.2."""

    def measure_job(job, *, store, on_progress):
        yield from _processes(job)

    monkeypatch.setattr(sitting, "measure_job", measure_job)


def _processes(job):
    for seed in range(3):
        tracks = [_track(one.key, 1.0 if one.baseline is None or one.clone_of else 1.2) for one in job.recipes]
        yield Process(seed, tuple(tracks), (None,) * 12, "a guard", {"device_name": "a device", "threads": 2})


def _track(key, ms):
    times = tuple(ms * (1 + index / 1000) for index in range(12))
    return Track(Lane(key, "eager", "host"), times, first_call_ms=5.0, warmup=3, calls=2)


@pytest.mark.usefixtures("timed")
def test_one_verdict():
    result = versus(design("a"), design("b", norm="layernorm"), Measuring(device="cpu"), quiet)
    first, second = (row["costs"][0]["latency"] for row in result.rows)
    assert first["verdict"] is None
    assert second["verdict"] == "slower"
    assert second["ratio"]["value"] == pytest.approx(1.2)
    text = versus_text(result.to_dict(), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "SLOWER: +20.0 %" in text
    assert "B / A: 1.200" in text
    assert "A / A: 1.000" in text
    assert "108 of 108 samples clean" in text


@pytest.mark.usefixtures("timed")
def test_blocks_of_other_names_are_compared():
    several = {"blocks": {"local": {"window": 4}, "wide": {}}, "layers": ["local", "wide"]}
    result = versus(design("a", **several), design("b"), Measuring(device="cpu"), quiet, block="local")
    assert result.head["measurements"][0]["block"] == "local and block"
    assert [c["verdict"] for row in result.rows for cost in row["costs"] for c in cost["latencies"]] == [None, "slower"]


@pytest.mark.parametrize(
    ("changes", "block", "message"),
    [
        ({"explore": {"norm": ["rmsnorm", "layernorm"]}}, None, "b explores norm: latency takes two single designs"),
        (
            {"blocks": {"x": {}, "y": {}}, "layers": ["x", "y"]},
            None,
            "b has several blocks; name one with --block: x, y",
        ),
        ({"blocks": {"x": {}, "y": {}}, "layers": ["x", "y"]}, "z", "neither has a block 'z'; there are: block, x, y"),
    ],
)
def test_what_cannot_be_compared_is_told(changes, block, message):
    with pytest.raises(UsageError, match=message):
        versus(design("a"), design("b", **changes), Measuring(device="cpu"), quiet, block=block)


def test_both_must_run_on_the_same():
    other = design("b", workloads=[{"phase": "decode", "context": 8, "dtype": "float32"}])
    with pytest.raises(UsageError, match=r"the two are not run on the same: a: prefill.*; b: decode.*write --workload"):
        versus(design("a"), other, Measuring(device="cpu"), quiet)


PAIR = {"encoder": {"layers": 1}, "decoder": {"layers": 1}, "vocab": 64}


def test_an_encoder_and_a_single_stack_share_no_workload():
    """No `--workload` could help: a single stack takes no source."""
    message = "two has an encoder and a has none: no workload is the same for both.*`explorer compare`"
    with pytest.raises(UsageError, match=message):
        versus(design("a"), design("two", **PAIR), Measuring(device="cpu"), quiet, block="decoder.block")


@pytest.mark.usefixtures("timed")
def test_an_encoder_whose_output_is_cached_is_not_timed():
    both = [WORKLOAD, {"phase": "decode", "context": 8, "dtype": "float32"}]
    ours, theirs = (design(name, **PAIR, workloads=both) for name in "ab")
    result = versus(ours, theirs, Measuring(device="cpu"), quiet, block="encoder.block")
    assert [one["workload"]["phase"] for one in result.head["measurements"]] == ["prefill"]
    ours, theirs = (design(name, **PAIR, workloads=both[1:]) for name in "ab")
    with pytest.raises(UsageError, match=r"encoder\.block does not run on these workloads"):
        versus(ours, theirs, Measuring(device="cpu"), quiet, block="encoder.block")


def test_a_block_that_neither_has():
    with pytest.raises(UsageError, match="neither has a block 'foo'; there are: block"):
        versus(design("a"), design("b"), Measuring(device="cpu"), quiet, block="foo")


def test_why_it_is_exit_1_is_told(monkeypatch):
    """One process lost B: the others have its times, and a verdict."""

    def measure_job(job, *, store, on_progress):
        yield from _processes(job)
        yield Failed(job.recipes[1].key, "its process was ended by SIGKILL")

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    result = versus(design("a"), design("b", norm="layernorm"), Measuring(device="cpu"), quiet)
    assert result.failed
    text = versus_text(result.to_dict(), 80)
    assert "SLOWER: " in text
    assert "failed: B: block: its process was ended by SIGKILL" in text


def test_an_implementation_that_failed_is_told(monkeypatch):
    def measure_job(job, *, store, on_progress):
        for process in _processes(job):
            yield replace(process, failed=tuple(Failed(r.key, "no g++", "compile") for r in job.recipes))

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    measuring = Measuring(device="cpu", impls=("eager", "compile"))
    text = versus_text(versus(design("a"), design("b"), measuring, quiet).to_dict(), 80)
    assert "failed: A: block: compile: no g++" in text
    assert "B / A (compile): not known\nNO VERDICT: no g++" in text


def test_what_is_said_with_care_below_tables_is_said_here_too(monkeypatch):
    def measure_job(job, *, store, on_progress):
        for process in _processes(job):
            slower = [
                replace(t, times_ms=tuple(2 * ms for ms in t.times_ms[:6]) + t.times_ms[6:]) for t in process.tracks
            ]
            facts = {recipe.key: {"eager": {"compile_s": 2.0, "recompiles": 1}} for recipe in job.recipes}
            yield replace(process, tracks=tuple(slower), disturbed=("a neighbour",) * 12, facts=facts)

    monkeypatch.setattr(sitting, "measure_job", measure_job)
    text = versus_text(versus(design("a"), design("b"), Measuring(device="cpu"), quiet).to_dict(), 120)
    assert "note: the halves of the rounds differ by more than 10 %" in text
    assert "note: something else used the device in every round" in text
    assert "note: compiled in 2.0 s, 1 recompile while measuring" in text
