"""Below the tables: reasons, conventions, what was left out."""

from types import SimpleNamespace
from typing import Any

from explorer.report.notes import LONGEST, notes


def by_head(document: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {note.head: note.lines for note in notes(document)}


def test_reasons_name_their_rows(make: SimpleNamespace) -> None:
    found = by_head(make.study())
    assert found["skipped"] == ("residual deepnorm is not defined for placement pre (rmsnorm, swiglu, mha, deepnorm)",)
    assert found["* incomplete, a lower bound"] == ("lab::mix x2 is not counted (layernorm, swiglu, gqa, add)",)
    assert found["unknown"] == ("matmul_flops_exact: a mask of its own in sdpa (rmsnorm, gelu, gqa, add)",)
    assert found["combinations"] == ("10 in the product, 5 rows, 1 skipped, 4 equal to another row",)
    assert found["latency"] == ("not measured (run with --measure)",)


def test_the_convention_is_always_there(result: dict[str, Any]) -> None:
    (line,) = by_head(result)["matmul FLOPs"]
    assert "1 multiply-add = 2 FLOPs" in line
    assert "mask not exploited" in line


def test_uneven_stacks_list_layers_times_parameters(make: SimpleNamespace) -> None:
    found = by_head(make.model())
    assert found["blocks"] == ("local 21 × 198.2 M, global 21 × 200.0 M",)
    assert found["shared"] == ("917,504,000 parameters used again, counted once",)


def test_measured_says_where_and_how(make: SimpleNamespace) -> None:
    document = make.measured()
    document["environment"]["measured_on"] = {"threads": 2, "precision": {"float32_matmul": "highest"}}
    document["combinations"][0]["costs"][0]["latency"]["steady"] = False
    found = by_head(document)
    assert found["failed"] == ("block: out of memory while measuring (多头注意力)",)
    assert "measured on NVIDIA H200 (eager, device)" in found["latency"][0]
    assert "threads 2" in found["environment"][0]
    assert found["latency, with care"][0].endswith("(gqa)")


def test_why_active_parameters_are_unknown(make: SimpleNamespace) -> None:
    document = make.model()
    document["combinations"][0]["params"].update(active=None, active_reason="a weight the trace cannot attribute")
    assert by_head(document)["unknown"] == ("active params: a weight the trace cannot attribute",)


def test_long_lists_are_cut_and_say_so(make: SimpleNamespace) -> None:
    values = [str(n) for n in range(30)]
    rows = [make.skipped(value, {"heads": value}, f"dim 64 must divide by heads {value}") for value in values]
    lines = by_head(make.document(rows, {"heads": values}))["skipped"]
    assert len(lines) == LONGEST + 1
    assert lines[-1] == "and 10 more (all of them: --format json)"
