"""Latency in tables: each number under what it is of, and failures where a number would stand."""

from types import SimpleNamespace
from typing import Any

import pytest

from explorer.report.comparison import Comparison, comparisons
from explorer.report.notes import notes
from explorer.report.terminal import terminal


def entry(median: float | None, **changes: Any) -> dict[str, Any]:
    """A measured entry; a failure without a median."""
    lane = {"source": "measured", "device": "cpu", "impl": "eager", "regime": "host"}
    span = {"median_ms": median, "low_ms": median, "high_ms": median, "first_call_ms": None, "rounds": 30}
    return {**lane, **span, "verdict": None, "ratio": None, "reason": None if median else "it broke", **changes}


def predicted(median: float, device: str = "h100-sxm") -> dict[str, Any]:
    about = {"source": "predicted", "device": device, "impl": "eager", "regime": "throughput", "basis": "a guess"}
    return {**about, "median_ms": median, "low_ms": median / 2, "high_ms": 2 * median, "reason": None}


def beside(make: SimpleNamespace, *rows: list[dict[str, Any]], **costs: Any) -> dict[str, Any]:
    """A block in several rows of which the first is the baseline; `rows` are their entries."""
    names = [f"row{number}" for number in range(len(rows))]
    found = []
    for name, entries in zip(names, rows, strict=True):
        cost = make.cost(make.prefill, latencies=entries, latency=entries[0] if entries else None, **costs)
        found.append(make.combination(name, {"norm": name}, [cost], baseline=name == "row0", baseline_id="row0"))
    return make.document(found, {"norm": names})


def columns(table: Comparison) -> dict[str, tuple[str, ...]]:
    return {column.header: column.cells for column in table.measures}


def note(document: dict[str, Any], head: str) -> tuple[str, ...]:
    return next((one.lines for one in notes(document) if one.head == head), ())


def uneven(make: SimpleNamespace) -> dict[str, Any]:
    """Two models of two kinds of layers; the second differs in `global` only."""
    slower = {"ratio": {"value": 1.2, "low": 1.18, "high": 1.22}, "verdict": "slower", "reason": "of course"}
    times = [
        {"local": [entry(1.5), predicted(0.3)], "global": [entry(2.0), predicted(0.4)]},
        {"local": [entry(1.5), predicted(0.3)], "global": [entry(2.4, **slower), predicted(0.6)]},
    ]
    blocks = [{"name": name, "layers": 1, "params": 10} for name in ("local", "global")]
    rows = []
    for name, of_blocks in zip(("a", "b"), times, strict=True):
        costs = [make.cost(make.prefill, name=block, latencies=found) for block, found in of_blocks.items()]
        costs.append(make.cost(make.prefill, "model", "model"))
        rows.append(make.combination(name, {"norm": name}, costs, block=None, blocks=blocks, model=20))
        rows[-1].update(baseline=name == "a", baseline_id="a")
    return make.document(rows, {"norm": ["a", "b"]})


def test_blocks_that_differ_have_a_table_of_their_own(make: SimpleNamespace) -> None:
    models, blocks = comparisons(uneven(make))
    assert not any("latency" in header or "predicted" in header for header in columns(models))
    assert blocks.title == "quickstart · blocks · prefill, batch 1, 2,048 tokens, bfloat16"
    assert blocks.label.cells == ("a, local", "a, global", "b, local", "b, global")
    found = columns(blocks)
    assert found["latency ms"] == ("1.500", "2.000", "1.500", "2.400")
    assert found["Δ latency"] == ("", "", "–", "+20.0% (18.0 to 22.0)")
    assert found["verdict"] == ("–", "–", "–", "slower")
    assert found["predicted ms, h100-sxm"][3] == "0.6000 (0.3000–1.200)"
    assert found["Δ predicted, h100-sxm"] == ("", "", "0%", "+50.0%")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_their_table_fits_the_screen(make: SimpleNamespace, width: int) -> None:
    lines = terminal(uneven(make), width=width, color=False).splitlines()
    assert max(map(len, lines)) <= width
    assert any("2.400" in line for line in lines)


def test_without_times_blocks_that_differ_need_no_table(make: SimpleNamespace) -> None:
    (table,) = comparisons(make.model())
    assert columns(table)["block params"] == ("uneven",)
    assert columns(table)["latency ms"] == ("not measured",)


def test_one_block_is_compared_with_one_of_another_name(make: SimpleNamespace) -> None:
    document = uneven(make)
    for row in document["combinations"]:
        of_name = "global" if row["baseline"] else "local"
        row["costs"] = [cost for cost in row["costs"] if cost["name"] in ("model", of_name)]
    (table,) = comparisons(document)
    assert columns(table)["Δ predicted, h100-sxm"] == ("", "-25.0%")


LOST = {"impl": "compile", "regime": None, "device": None}


def test_an_implementation_that_failed_has_a_column(make: SimpleNamespace) -> None:
    eager, compiled = [entry(1.0), entry(None, **LOST)], [entry(1.0), entry(0.5, impl="compile")]
    (table,) = comparisons(beside(make, eager, compiled))
    assert columns(table)["latency ms, compile"] == ("failed", "0.5000"), "under the lane that another row has"
    assert columns(table)["latency ms, eager"] == ("1.000", "1.000")
    (table,) = comparisons(beside(make, eager, eager))
    assert columns(table)["latency ms, compile"] == ("failed", "failed"), "where it failed everywhere"
    assert [header for header in columns(table) if "latency" in header] == [
        *("latency ms, eager", "Δ latency, eager", "latency ms, compile"),
    ], "which leaves nothing to compare"


def test_a_device_that_nothing_is_known_of_has_a_column(make: SimpleNamespace) -> None:
    unknown = {**predicted(1.0, "l4"), **dict.fromkeys(("impl", "regime", "median_ms", "low_ms", "high_ms"))}
    (table,) = comparisons(beside(make, [predicted(1.0), {**unknown, "reason": "no peak"}]))
    assert columns(table)["predicted ms, l4"] == ("unknown",)


def test_a_failure_is_told_once(make: SimpleNamespace) -> None:
    document = beside(make, [entry(1.0), entry(None, **LOST)])
    assert note(document, "latency, with care") == ("compile: it broke",)
    document["combinations"][0]["error"] = "block: compile: it broke"
    assert note(document, "failed") == ("block: compile: it broke",)
    assert note(document, "latency, with care") == ()


def summed(median: float | None, error: float | None = None, **changes: Any) -> dict[str, Any]:
    return entry(median, of="parts", error=error, **changes)


@pytest.mark.parametrize(
    ("base", "own", "text"),
    [
        (summed(1.0, 0.05), summed(1.10, 0.05), "within 10.5%"),  # (1 + 0.05) / (1 - 0.05) = 1.105
        (summed(1.0, 0.05), summed(0.91, 0.05), "within 10.5%"),
        (summed(1.0, 0.05), summed(1.11, 0.05), "+11.0%"),
        (summed(1.0, 0.05), summed(0.90, 0.05), "-10.0%"),
        (summed(1.0), summed(1.5), "–"),
        (summed(1.0, 1.2), summed(9.0, 1.2), "–"),
        (summed(1.0, 0.05), summed(None), "–"),
        (summed(1.0, 0.05, session="a"), summed(1.5, 0.05, session="b"), "–"),
        (summed(1.0, 0.05, cache="warm"), summed(1.5, 0.05, cache="cold weights"), "–"),
    ],
)
def test_sums_differ_only_beyond_the_errors_of_both(make: SimpleNamespace, base: Any, own: Any, text: str) -> None:
    (table,) = comparisons(beside(make, [base], [own]))
    assert columns(table)["Δ latency, sum of parts"] == ("", text)
