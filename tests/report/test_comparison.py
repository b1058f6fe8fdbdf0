"""Tables hold the numbers of the document, and say where there are none."""

from types import SimpleNamespace
from typing import Any

import pytest

from explorer.report.comparison import Comparison, comparisons
from explorer.report.document import workload_text, workloads

SCALES = {"M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12, "MB": 1e6, "GB": 1e9}
KEYS = {
    "matmul FLOPs fwd, dense": "matmul_flops",
    "matmul FLOPs fwd, exact": "matmul_flops_exact",
    "KV bytes/token": "kv_bytes_per_token",
    "KV bytes/token, windows full": "kv_bytes_per_token_full_windows",
    "KV cache bytes": "kv_cache_bytes",
    "weight bytes": "weight_bytes",
}


def headers(table: Comparison) -> list[str]:
    return [column.header for column in table.measures]


def cells(table: Comparison, header: str) -> tuple[str, ...]:
    (found,) = [column.cells for column in (*table.choices, *table.measures) if column.header == header]
    return found


def number(text: str) -> float | None:
    """A cell read back."""
    if text in ("unknown", "uneven"):
        return None
    digits, _, scale = text.rstrip("*").partition(" ")
    return float(digits.replace(",", "")) * SCALES.get(scale, 1)


def main_costs(document: dict[str, Any], workload: dict[str, Any]) -> list[dict[str, Any]]:
    costs = [[c for c in row["costs"] if c["workload"] == workload] for row in document["combinations"]]
    return [next((c for c in of_row if c["scope"] == "model"), of_row[0]) for of_row in costs if of_row]


def test_every_number_is_that_of_the_document(result: dict[str, Any]) -> None:
    for table, workload in zip(comparisons(result), workloads(result), strict=True):
        costs = main_costs(result, workload)
        for header in set(headers(table)) & set(KEYS):
            for cell, cost in zip(cells(table, header), costs, strict=True):
                expected = cost[KEYS[header]]
                assert number(cell) == (None if expected is None else pytest.approx(expected, rel=5e-4)), header


def test_parameters_and_differences(make: SimpleNamespace) -> None:
    table = comparisons(make.measured())[0]
    assert cells(table, "model params") == ("8.030 B", "9.030 B", "10.03 B")
    assert cells(table, "Δ params") == ("baseline", "+12.5%", "+24.9%")
    assert cells(table, "block params") == ("218.1 M",) * 3
    assert table.baselines == (True, False, False)


def test_one_table_per_workload(make: SimpleNamespace) -> None:
    prefill, decode = comparisons(make.study())
    assert prefill.title == "quickstart · one block · prefill, batch 1, 2,048 tokens, bfloat16"
    assert decode.title == "quickstart · one block · decode, batch 8, 1 token, context 131,072, bfloat16"
    assert len(prefill.label.cells) == 5, "a skipped combination is no row"


def test_unknown_is_not_zero_and_incomplete_is_marked(make: SimpleNamespace) -> None:
    table = comparisons(make.study())[0]
    assert cells(table, "matmul FLOPs fwd, exact")[2] == "unknown"
    assert cells(table, "matmul FLOPs fwd, dense")[3] == "923.4 G*"


def test_not_measured_is_said(make: SimpleNamespace) -> None:
    assert cells(comparisons(make.study())[0], "latency ms") == ("not measured",) * 5


def test_block_latency_is_labelled_beside_a_model(make: SimpleNamespace) -> None:
    table = comparisons(make.measured())[0]
    assert cells(table, "block latency ms") == ("12.35", "15.68", "failed")
    assert cells(table, "Δ latency") == ("", "+27.0% (25.0 to 30.5)", "–")
    assert cells(table, "low–high ms")[0] == "12.10–12.59"


def test_each_device_has_a_column_of_its_own(make: SimpleNamespace) -> None:
    document = make.measured()
    document["combinations"][1]["costs"][0]["latency"]["device"] = "cpu"
    table = comparisons(document)[0]
    assert cells(table, "block latency ms, NVIDIA H200") == ("12.35", "not measured", "failed")
    assert cells(table, "block latency ms, cpu") == ("not measured", "15.68", "not measured")


def test_train_says_that_both_passes_count_and_has_no_cache(make: SimpleNamespace) -> None:
    document = make.document([make.combination("as written", {}, [make.cost(make.train)])])
    (table,) = comparisons(document)
    assert "matmul FLOPs fwd + bwd, dense" in headers(table)
    assert not any("KV" in header for header in headers(table))


def test_active_parameters_show_where_they_differ(make: SimpleNamespace) -> None:
    document = make.document([make.combination("as written", {}, [make.cost(make.prefill)])])
    assert "active params" not in headers(comparisons(document)[0])
    document["combinations"][0]["params"]["active"] = 74_240
    assert cells(comparisons(document)[0], "active params") == ("74,240",)


def test_blocks_without_a_model_are_rows_of_their_own(make: SimpleNamespace) -> None:
    costs = [make.cost(make.prefill, name="encoder.block"), make.cost(make.prefill, name="decoder.block")]
    blocks = [
        {"name": name, "layers": 1, "params": size} for name, size in (("encoder.block", 10), ("decoder.block", 20))
    ]
    document = make.document([make.combination("as written", {}, costs, block=None, blocks=blocks)])
    (table,) = comparisons(document)
    assert cells(table, "part") == ("encoder.block", "decoder.block")
    assert cells(table, "params") == ("10", "20")
    assert table.label.cells == ("quickstart, encoder.block", "quickstart, decoder.block")


def test_a_resting_axis_is_a_dash(make: SimpleNamespace) -> None:
    axes = {"attention": ["gqa", "mha"], "attention.kv_heads": ["8", "4"]}
    rows = [
        make.combination("gqa, 8", {"attention": "gqa", "attention.kv_heads": "8"}, [make.cost(make.prefill)]),
        make.combination("mha", {"attention": "mha"}, [make.cost(make.prefill)]),
    ]
    (table,) = comparisons(make.document(rows, axes))
    assert cells(table, "attention.kv_heads") == ("8", "–")
    assert table.label.cells == ("gqa, kv_heads=8", "mha")


NAMES = [  # values of an axis, what a table calls the first
    ("norm", ["rmsnorm:eps=1e-05", "layernorm"], "rmsnorm"),
    ("attention", ["gqa:kv_heads=8", "gqa:kv_heads=1"], "gqa:kv_heads=8"),
    ("attention", ["gqa:kv_heads=8", "as_written"], "gqa:kv_heads=8"),
    ("residual", ["none", "add"], "residual=none"),
    ("layers", ["10", "20"], "layers=10"),
    ("feedforward.hidden", ["{ratio: 4}", "64"], "hidden={ratio: 4}"),
    ("era", ["classic-2017", "modern"], "classic-2017"),
    ("norm", ["lab:rmsnorm", "rmsnorm"], "lab:rmsnorm"),
]


@pytest.mark.parametrize(("axis", "values", "name"), NAMES)
def test_row_names_are_short_and_still_tell_rows_apart(
    make: SimpleNamespace, axis: str, values: list[str], name: str
) -> None:
    rows = [make.combination(value, {axis: value}, [make.cost(make.prefill)]) for value in values]
    (table,) = comparisons(make.document(rows, {axis: values}))
    assert table.label.cells[0] == name
    assert len(set(table.label.cells)) == len(values)


def test_each_row_is_compared_with_its_own_baseline(make: SimpleNamespace) -> None:
    rows = []
    for layers in ("10", "20"):
        for residual, block in (("add", 1000 * int(layers)), ("mhc", 1100 * int(layers))):
            choices = {"residual": residual, "layers": layers}
            row = make.combination(f"{residual} {layers}", choices, [make.cost(make.prefill)], block=block)
            rows.append({**row, "baseline": residual == "add", "baseline_id": f"add-{layers}"})
    (table,) = comparisons(make.document(rows, {"residual": ["add", "mhc"], "layers": ["10", "20"]}))
    assert cells(table, "Δ params") == ("baseline", "+10.0%", "baseline", "+10.0%")


def test_a_missing_baseline_is_a_dash(make: SimpleNamespace) -> None:
    document = make.study()
    document["combinations"][2]["baseline_id"] = None
    assert cells(comparisons(document)[0], "Δ params")[2] == "–"


WORKLOADS = [
    (
        {"phase": "prefill", "batch": 2, "tokens": 10, "context": 25},
        "prefill, batch 2, 10 tokens, context 25, bfloat16",
    ),
    (
        {"phase": "prefill", "batch": 1, "tokens": 4, "context": 4, "source": 9},
        "prefill, batch 1, 4 tokens, source 9, bfloat16",
    ),
    (
        {
            "phase": "decode",
            "batch": 1,
            "tokens": 1,
            "context": 8,
            "kv_dtype": "float8_e4m3fn",
            "weight_dtype": "bfloat16",
        },
        "decode, batch 1, 1 token, context 8, bfloat16, kv float8_e4m3fn",
    ),
]


@pytest.mark.parametrize(("workload", "text"), WORKLOADS)
def test_workload_text_shows_queries_and_keys(workload: dict[str, Any], text: str) -> None:
    assert workload_text({**workload, "dtype": "bfloat16"}) == text


def test_a_ratio_without_an_interval_is_told_as_such(make: SimpleNamespace) -> None:
    document = make.measured()
    document["combinations"][1]["costs"][0]["latency"]["ratio"] = {"value": 1.27, "low": None, "high": None}
    assert cells(comparisons(document)[0], "Δ latency")[1] == "+27.0% (?)"
