"""Element-wise operations, bytes, memory and breakdowns as columns: where they stand and what they say."""

from types import SimpleNamespace
from typing import Any

import pytest

from explorer.report.audit import audit_lines
from explorer.report.breakdown import breakdowns
from explorer.report.comparison import comparisons
from explorer.report.json_text import json_text
from explorer.report.markdown import markdown
from explorer.report.terminal import terminal
from explorer.report.units import share

PART = {
    "matmul_flops": 30, "matmul_flops_exact": 20, "elementwise_ops": 6, "cheap_ops": 1, "transcendental_ops": 2,
    "reduction_ops": 3, "moved_bytes": 60, "moved_weights": 10, "moved_activations": 20, "moved_cache": 30,
    "fused_bytes": 40, "kernels": 5,
}  # fmt: skip


def swapped_norm(make: SimpleNamespace, **changes: Any) -> dict[str, Any]:
    """Two rows with the same matrix products; the second moves half the bytes."""
    axes = {"norm": ["rmsnorm", "layernorm"]}
    rows = []
    for index, name in enumerate(axes["norm"]):
        counted = {"elementwise_ops": 8, "moved_bytes": 200 // (1 + index), "fused_bytes": 90, "kernels": 2, **changes}
        rows.append(make.combination(name, {"norm": name}, [make.cost(make.prefill, **counted)]))
        rows[-1].update(baseline=index == 0, baseline_id="rmsnorm")
    return make.document(rows, axes)


def headers(document: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    (table,) = comparisons(document)
    return {column.header: column.cells for column in table.measures}


def test_bytes_stand_ahead_where_products_do_not_tell_rows_apart(make: SimpleNamespace) -> None:
    document = swapped_norm(make)
    cells = headers(document)
    assert cells["moved bytes"] == ("200", "100")
    assert cells["Δ moved"] == ("", "-50.0%")
    assert cells["elementwise ops"] == ("8", "8")
    text = terminal(document, width=80, color=False)
    assert "-50.0%" in text
    assert "left out:" in text
    assert "fused bytes" in text.partition("left out:")[2]
    document["combinations"][1]["costs"][0]["matmul_flops"] += 1
    assert "-50.0%" not in terminal(document, width=60, color=False)


def test_what_an_operator_without_a_rule_computes_is_marked_and_its_bytes_are_not(make: SimpleNamespace) -> None:
    cells = headers(swapped_norm(make, incomplete=["lab::mix x1"]))
    assert cells["elementwise ops"] == ("8*", "8*")
    assert cells["moved bytes"] == ("200", "100")


def test_memory_stands_where_it_is_known(make: SimpleNamespace) -> None:
    assert "peak memory" not in headers(swapped_norm(make))
    held = {"weights": 1, "gradients": 0, "optimizer": 0, "activations": 7, "peak": 2_500_000, "inference_peak": 3}
    assert headers(swapped_norm(make, memory=held))["peak memory"] == ("2.500 MB",) * 2
    train = headers(make.document([make.combination("x", {}, [make.cost(make.train, memory=held)])]))
    assert (train["saved for backward"], train["inference peak"]) == (("7",), ("3",))


def test_memory_says_whose_kernels_it_is_of(make: SimpleNamespace) -> None:
    held = dict.fromkeys(("weights", "gradients", "optimizer", "activations", "peak", "inference_peak"), 7)
    train = make.document([make.combination("x", {}, [make.cost(make.train, memory=held)])])
    for text in (terminal(train, width=200, color=False), markdown(train)):
        assert "memory: as torch's eager kernels of a CPU hold it; on CUDA attention with dropout keeps no" in text
    assert "kernels of a CPU" not in terminal(train, width=60, color=False), "no column of memory has room"
    prefill = swapped_norm(make, memory=held)
    assert "memory: as torch's eager kernels of a CPU hold it\n" in terminal(prefill, width=200, color=False)
    assert "kernels of a CPU" not in terminal(swapped_norm(make), width=200, color=False)


def test_a_breakdown_has_shares_and_the_whole(make: SimpleNamespace) -> None:
    unknown = {**PART, "matmul_flops": 70, "matmul_flops_exact": None}
    cost = make.cost(make.prefill, breakdown={"attention": PART, "feedforward": unknown})
    document = make.document([make.combination("x", {}, [cost])])
    operations, traffic = breakdowns(document)
    cells = [(column.header, column.cells) for column in operations.measures]
    assert cells[:4] == [
        ("matmul FLOPs, dense", ("30", "70", "100")),
        ("%", ("30.0%", "70.0%", "100.0%")),
        ("matmul FLOPs, exact", ("20", "unknown", "unknown")),
        ("%", ("–", "–", "–")),
    ]
    assert operations.label.cells == ("attention", "feedforward", "whole")
    assert ("kernels", ("5", "5", "10")) in [(column.header, column.cells) for column in traffic.measures]
    text = terminal(document, width=80, color=False, breakdown=True)
    assert max(map(len, text.splitlines())) <= 80
    assert "residual: entering" in text


def test_whole_blueprints_show_what_attention_takes(make: SimpleNamespace) -> None:
    cost = make.cost(make.prefill, matmul_flops=90, breakdown={"attention": PART})
    old = make.cost(make.prefill)
    rows = [
        make.combination(n, {"blueprint": n}, [c], resolved={"dim": 4, "heads": 2})
        for n, c in (("a", cost), ("b", old))
    ]
    cells = headers(make.document(rows, {"blueprint": ["a", "b"]}))
    assert cells["attention % of FLOPs"] == ("33.3%", "–"), "a result of an earlier version does not say"
    assert cells["feedforward % of FLOPs"] == ("0%", "–")


@pytest.mark.parametrize(
    ("value", "whole", "text"), [(1, 3, "33.3%"), (0, 3, "0%"), (1, 5000, "<0.1%"), (0, 0, "–"), (None, 3, "–")]
)
def test_shares(value: int | None, whole: int, text: str) -> None:
    assert share(value, whole) == text


def test_an_audit_that_failed_is_told_first(make: SimpleNamespace) -> None:
    document = swapped_norm(make)
    where = {"id": "layernorm", "workload": make.prefill, "scope": "model", "name": "model", "part": ""}
    mismatch = {**where, "number": "kernels", "summed": 1000, "whole": 1001}
    document["audit"] = {"rows": 2, "planned": 2, "mismatches": [mismatch]}
    head, line = audit_lines(document)
    assert head.startswith("1 number in 1 of 2 audited rows: ")
    assert line.startswith("row layernorm (layernorm), model, prefill")
    assert line.endswith("between parts: kernels 1,000 as a sum of parts, 1,001 in a pass of the whole")
    notes = terminal(document, width=200, color=False).split("\n\n")[1]
    assert notes.startswith("audit failed:")
    document["audit"] = {"rows": 0, "planned": 8, "mismatches": []}
    assert audit_lines(document) == []
    text = "audit: 0 of 8 rows traced as a whole, it would take too long: no sum is confirmed (--audit 8)"
    assert text in terminal(document, width=200, color=False)


def test_json_keeps_short_objects_on_a_line(make: SimpleNamespace) -> None:
    lines = json_text(swapped_norm(make)).splitlines()
    assert '      "choices": {"norm": "rmsnorm"},' in lines
    assert max(map(len, lines)) < 250
