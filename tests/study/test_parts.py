"""Sums of parts: each distinct piece once, and how far the sums are from whole blocks."""

import pytest

from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.registry.loading import load_registry
from explorer.report.latency_notes import sums_of_parts
from explorer.study.comparisons import comparisons
from explorer.study.measured import Measured
from explorer.study.parts import Parts, Summed
from explorer.study.run import run

STUDY = {
    "dim": 32,
    "heads": 4,
    "workloads": [{"phase": "prefill", "tokens": 8}],
    "explore": {
        "norm": ["layernorm", "rmsnorm"],
        "attention": ["mha", {"gqa": {"kv_heads": 1}}, {"gqa": {"kv_heads": 2}}],
        "activation": ["gelu", "swiglu"],
    },
}


@pytest.fixture(scope="module")
def parts():
    (comparison,) = comparisons(run(STUDY, audit=0).to_dict()["combinations"])
    return Parts(comparison, load_registry())


def found(parts, ms, failed=(), whole=None):
    """A process in which the pieces take `ms(recipe)`, and whole blocks `whole`."""
    lanes = [(recipe, ms(recipe) if recipe.piece else whole) for recipe in parts.recipes if recipe.key not in failed]
    tracks = tuple(
        Track(Lane(recipe.key, "eager", "host"), (time,) * 10, first_call_ms=1.0, warmup=1, calls=1)
        for recipe, time in lanes
        if time is not None
    )
    failures = tuple(Failed(key, "its process ended") for key in failed)
    process = Process(0, tracks, (None,) * 10, "a guard", {"device_name": "a device", "threads": 1}, failed=failures)
    return Summed(parts, Measured([process], parts.checked.baselines))


def test_twelve_rows_have_seven_pieces(parts):
    """Three attentions, two feed-forwards, two norms between them."""
    assert len(parts.of_row) == 12
    pieces = [recipe for recipe in parts.recipes if recipe.piece]
    assert sorted(recipe.piece for recipe in pieces) == ["attention"] * 3 + ["connection"] * 2 + ["feedforward"] * 2
    assert len({recipe.key for recipe in pieces}) == 7
    assert 4 <= len(parts.checked.places) <= 5
    assert any(row["baseline"] for row, _ in parts.checked.places)


def test_a_row_is_the_sum_of_its_pieces(parts):
    times = {"attention": 1.0, "feedforward": 2.0, "connection": 0.5}
    summed = found(parts, lambda recipe: times[recipe.piece], whole=3.5)
    for row in parts.of_row:
        (entry,) = summed.entry(row)
        assert (entry["median_ms"], entry["of"], entry["source"]) == (3.5, "parts", "measured")
        assert (entry["impl"], entry["regime"], entry["device"]) == ("eager", "host", "a device")
        assert sorted(entry["pieces"].values()) == [0.5, 1.0, 2.0]
    assert summed.to_dict()["median_error"] == pytest.approx(0)


def test_the_error_of_the_sums_is_told(parts):
    told = found(parts, lambda recipe: 1.0, whole=2.5).to_dict()
    assert told["median_error"] == told["largest_error"] == pytest.approx(0.2)
    (line,) = sums_of_parts({"measurements": [{"parts": told}]})
    assert "sums of 7 parts; against" in line
    assert "off by 20.0% (median)" in line


def test_no_whole_block_no_error(parts):
    told = found(parts, lambda recipe: 1.0).to_dict()
    assert told["median_error"] is None
    assert sums_of_parts({"measurements": [{"parts": told}]}) == ["block: sums of 7 parts; no whole block was timed"]


def test_a_piece_that_failed_costs_the_rows_that_have_it(parts):
    lost = next(recipe.key for recipe in parts.recipes if recipe.piece == "attention")
    summed = found(parts, lambda recipe: 1.0, failed=(lost,))
    entries = {row: summed.entry(row)[0] for row in parts.of_row}
    without = [row for row, keys in parts.of_row.items() if lost in keys]
    assert len(without) == 4
    assert all(entries[row]["median_ms"] is None for row in without)
    assert entries[without[0]]["reason"] == f"{lost}: its process ended"
    assert all(entries[row]["median_ms"] == 3.0 for row in entries if row not in without)
