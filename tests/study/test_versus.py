"""Two blueprints, one verdict: what is timed is faked, so that the verdict is known."""

import pytest

from explorer.blueprint.load import load
from explorer.errors import UsageError
from explorer.latency.raw import Lane, Process, Track
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
        for seed in range(3):
            tracks = [
                _track(recipe.key, 1.0 if recipe.baseline is None or recipe.clone_of else 1.2) for recipe in job.recipes
            ]
            yield Process(seed, tuple(tracks), (None,) * 12, "a guard", {"device_name": "a device", "threads": 2})

    monkeypatch.setattr(sitting, "measure_job", measure_job)


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


def test_a_block_that_neither_has():
    with pytest.raises(UsageError, match="neither has a block 'foo'; there are: block"):
        versus(design("a"), design("b"), Measuring(device="cpu"), quiet, block="foo")
