"""Sums of parts: each distinct piece once, and how far the sums are from whole blocks."""

from dataclasses import replace

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


def tracks(parts, ms, whole=None, impl="eager", without=()):
    """Pieces that take `ms(recipe)`, and whole blocks that take `whole` (None: they have no times)."""
    lanes = [(recipe, ms(recipe) if recipe.piece else whole) for recipe in parts.recipes if recipe.key not in without]
    return tuple(
        Track(Lane(recipe.key, impl, "host"), (time,) * 10, first_call_ms=1.0, warmup=1, calls=1)
        for recipe, time in lanes
        if time is not None
    )


def found(parts, ms, failed=(), whole=None):
    """What follows from one process."""
    failures = tuple(Failed(key, "its process ended") for key in failed)
    return summed(parts, tracks(parts, ms, whole, without=failed), failures)


def summed(parts, tracks, failures=()):
    about = {"device_name": "a device", "threads": 1}
    process = Process(0, tuple(tracks), (None,) * 10, "a guard", about, failed=tuple(failures))
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
        (entry,) = summed.entries(row)
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
    assert told["checked"] == len(parts.checked.places)
    assert told["lanes"] == [
        {"impl": "eager", "regime": "host", **{key: told[key] for key in ("checked", "median_error", "largest_error")}}
    ]


def test_only_blocks_that_were_timed_count_as_checked(parts):
    one = parts.checked.places[0][0]["id"]
    timed = [t for t in tracks(parts, lambda recipe: 1.0, whole=2.5) if t.lane.candidate in (*pieces_of(parts), one)]
    told = summed(parts, timed).to_dict()
    assert (told["checked"], len(told["errors"])) == (1, 1)


def test_each_implementation_has_an_error_of_its_own(parts):
    eager = tracks(parts, lambda recipe: 1.0, whole=3.0)
    compiled = tracks(parts, lambda recipe: 1.0, whole=2.5, impl="compile")
    sums = summed(parts, [*eager, *compiled])
    entries = {entry["impl"]: entry["error"] for entry in sums.entries(next(iter(parts.of_row)))}
    assert entries == {"eager": pytest.approx(0), "compile": pytest.approx(0.2)}
    assert [lane["median_error"] for lane in sums.to_dict()["lanes"]] == [pytest.approx(0), pytest.approx(0.2)]


def pieces_of(parts):
    return {key for keys in parts.of_row.values() for key in keys}


def test_an_implementation_in_which_no_piece_ran_is_told(parts):
    lost = [Failed(key, "not compiled: no g++", "compile") for key in sorted(pieces_of(parts))]
    row, keys = next(iter(parts.of_row.items()))
    eager, compiled = summed(parts, tracks(parts, lambda recipe: 1.0), lost).entries(row)
    assert (eager["impl"], eager["median_ms"]) == ("eager", 3.0)
    assert (compiled["impl"], compiled["regime"], compiled["median_ms"]) == ("compile", None, None)
    assert compiled["of"] == "parts"
    assert compiled["reason"] == "; ".join(f"{key}: not compiled: no g++" for key in keys)


def test_a_piece_that_did_not_compile_costs_its_rows_that_sum(parts):
    lost = next(recipe.key for recipe in parts.recipes if recipe.piece == "attention")
    compiled = [t for t in tracks(parts, lambda recipe: 0.5, impl="compile") if t.lane.candidate != lost]
    sums = summed(parts, [*tracks(parts, lambda recipe: 1.0), *compiled], [Failed(lost, "a graph break", "compile")])
    for row, keys in parts.of_row.items():
        first, second = sums.entries(row)
        assert (first["impl"], first["median_ms"]) == ("eager", 3.0)
        assert (second["impl"], second["regime"]) == ("compile", "host")
        assert second["median_ms"] == (None if lost in keys else 1.5)
        assert second["reason"] == (f"{lost}: a graph break" if lost in keys else None)


@pytest.mark.parametrize("impl", ["eager", "compile"])
def test_a_piece_without_a_valid_sample_says_so(parts, impl):
    """In eager mode one attention; compiled no piece at all."""
    one = next(recipe.key for recipe in parts.recipes if recipe.piece == "attention")
    lost = {one} if impl == "eager" else pieces_of(parts)
    eager, other = tracks(parts, lambda recipe: 1.0), tracks(parts, lambda recipe: 1.0, impl=impl)
    void = [replace(t, times_ms=(None,) * 10) if t.lane.candidate in lost else t for t in other]
    row = next(row for row, keys in parts.of_row.items() if one in keys)
    found = summed(parts, void if impl == "eager" else [*eager, *void]).entries(row)
    (entry,) = (entry for entry in found if entry["impl"] == impl)
    assert entry["median_ms"] is None
    assert f"{one}: no valid sample" in entry["reason"]


def test_a_sum_goes_round_copies_where_a_piece_did(parts):
    """A norm has so few weights that it stays warm."""
    timed = [t if "connection" in t.lane.candidate else replace(t, copies=7) for t in tracks(parts, lambda recipe: 1.0)]
    (entry,) = summed(parts, timed).entries(next(iter(parts.of_row)))
    assert entry["copies"] == 7


def test_no_whole_block_no_error(parts):
    told = found(parts, lambda recipe: 1.0).to_dict()
    assert told["median_error"] is None
    assert sums_of_parts({"measurements": [{"parts": told}]}) == ["block: sums of 7 parts; no whole block was timed"]


def test_a_piece_that_failed_costs_the_rows_that_have_it(parts):
    lost = next(recipe.key for recipe in parts.recipes if recipe.piece == "attention")
    summed = found(parts, lambda recipe: 1.0, failed=(lost,))
    entries = {row: summed.entries(row)[0] for row in parts.of_row}
    without = [row for row, keys in parts.of_row.items() if lost in keys]
    assert len(without) == 4
    assert all(entries[row]["median_ms"] is None for row in without)
    assert entries[without[0]]["reason"] == f"{lost}: its process ended"
    assert all(entries[row]["median_ms"] == 3.0 for row in entries if row not in without)
