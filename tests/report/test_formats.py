"""Markdown, CSV and JSON say what the document says, each in its own way."""

import csv
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from explorer.report.comparison import comparisons
from explorer.report.csv_text import csv_text
from explorer.report.json_text import json_text
from explorer.report.markdown import escaped, markdown
from explorer.study.frame import COUNTS, columns, entries_left_out, rows


def parsed(document: dict[str, Any]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(document))))


def test_csv_has_a_row_per_cost_with_exact_numbers(result: dict[str, Any]) -> None:
    costs = [(row, cost) for row in result["combinations"] for cost in row["costs"]]
    found = [line for line in parsed(result) if not line["skipped"]]
    assert len(found) == len(costs)
    for line, (row, cost) in zip(found, costs, strict=True):
        assert (line["id"], line["scope"], line["name"]) == (row["id"], cost["scope"], cost["name"])
        assert int(line["tokens"]) == cost["workload"]["tokens"]
        assert {key: line[key] for key in COUNTS} == {
            key: "" if cost[key] is None else str(cost[key]) for key in COUNTS
        }


def test_csv_params_belong_to_the_part(make: SimpleNamespace) -> None:
    local, other, whole = parsed(make.model())
    assert (local["params"], local["layers"], local["shared_params"]) == ("198195712", "21", "")
    assert (other["params"], other["layers"]) == ("200000000", "21")
    assert (whole["params"], whole["layers"], whole["shared_params"]) == ("9241705984", "", "917504000")


def test_csv_keeps_skipped_rows_and_choices(make: SimpleNamespace) -> None:
    *_, last = parsed(make.study())
    assert last["skipped"] == "residual deepnorm is not defined for placement pre"
    assert last["choices.residual"] == "deepnorm"
    assert last["params"] == last["matmul_flops"] == ""


def test_csv_latency(make: SimpleNamespace) -> None:
    first = parsed(make.measured())[0]
    assert (first["latency_median_ms"], first["latency_device"]) == ("12.345", "NVIDIA H200")


def test_csv_says_what_a_latency_is_and_how_many_there_are(make: SimpleNamespace) -> None:
    document = make.measured()
    base, other, _ = (row["costs"][0] for row in document["combinations"])
    sums = {"of": "parts", "error": 0.04, "verdict": None, "reason": "a word of care"}
    base["latency"].update(sums)
    base["latencies"].append({**base["latency"], "impl": "compile"})
    other["latencies"][0].update(source="predicted", validated=False, basis="a data sheet")
    first, whole, second, *_ = parsed(document)
    of, error, reason, entries = (first[f"latency_{key}"] for key in ("of", "error", "reason", "entries"))
    assert (of, error, reason, entries) == ("parts", "0.04", "a word of care", "2")
    assert first["latency_ratio"] == ""
    ratio = [second[f"latency_{key}"] for key in ("ratio", "ratio_low", "ratio_high")]
    assert ratio == ["1.27", "1.25", "1.305"]
    assert (second["latency_validated"], second["latency_basis"]) == ("false", "a data sheet")
    assert whole["latency_entries"] == "0"
    assert entries_left_out(document) == 1


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\tx"])
def test_csv_text_is_never_a_formula(make: SimpleNamespace, text: str) -> None:
    document = make.study()
    document["combinations"][0]["label"] = text
    document["combinations"][0]["costs"][0]["matmul_flops"] = -5
    first = parsed(document)[0]
    assert first["label"] == f"'{text}"
    assert first["matmul_flops"] == "-5", "numbers are not text"


def test_frame_rows_match_its_columns(result: dict[str, Any]) -> None:
    names = columns(result)
    assert len(names) == len(set(names))
    assert {len(row) for row in rows(result)} == {len(names)}


def test_markdown_holds_the_cells_of_the_tables(result: dict[str, Any]) -> None:
    lines = markdown(result).splitlines()
    for table in comparisons(result):
        shown = (*table.choices, *table.measures)
        assert f"| {' | '.join(escaped(column.header) for column in shown)} |" in lines
        for row in zip(*(column.cells for column in shown), strict=True):
            assert f"| {' | '.join(map(escaped, row))} |" in lines


def test_markdown_escapes_what_would_break_a_table(make: SimpleNamespace) -> None:
    document = make.measured()
    document["combinations"][0]["choices"]["attention"] = "a|b*c<d>"
    (line,) = [line for line in markdown(document).splitlines() if "a\\|b" in line and line.startswith("|")]
    assert line.startswith("| a\\|b\\*c\\<d\\> | 8.030 B |")


def test_json_is_the_document(result: dict[str, Any]) -> None:
    assert json.loads(json_text(result)) == result
    assert list(json.loads(json_text(result))) == list(result)


def test_json_refuses_what_is_no_json(make: SimpleNamespace) -> None:
    document = make.model()
    document["environment"]["speed"] = float("nan")
    with pytest.raises(ValueError, match="JSON compliant"):
        json_text(document)


def test_big_counts_keep_every_digit(make: SimpleNamespace) -> None:
    document = make.model()
    document["combinations"][0]["costs"][2]["matmul_flops"] = 2**70 + 1
    assert parsed(document)[2]["matmul_flops"] == str(2**70 + 1)
    assert str(2**70 + 1) in json_text(document)
