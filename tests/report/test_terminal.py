"""A table for a screen: never wider than it, numbers whole, nothing dropped in silence."""

from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len

from explorer.report.comparison import Comparison, comparisons
from explorer.report.terminal import fit, terminal

WIDTHS = (60, 80, 100, 120, 160, 200)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_screen(result: dict[str, Any], width: int) -> None:
    lines = terminal(result, width=width, color=False).splitlines()
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_numbers_stay_in_one_piece(result: dict[str, Any], width: int) -> None:
    lines = terminal(result, width=width, color=False).splitlines()
    for table in comparisons(result):
        for column in fit(table, width).columns[1:]:
            for cell in column.cells if column.numeric else ():
                assert any(cell in line for line in lines), (column.header, cell)


@pytest.mark.parametrize("width", WIDTHS)
def test_shown_and_left_out_are_everything(result: dict[str, Any], width: int) -> None:
    text = " ".join(terminal(result, width=width, color=False).split())
    for table in comparisons(result):
        fitted = fit(table, width)
        shown = [column.header for column in fitted.columns]
        assert {*shown, *fitted.left_out} >= {column.header for column in table.measures}
        assert all(header in text for header in fitted.left_out)


def test_parameters_flops_and_cache_fit_80_columns(result: dict[str, Any]) -> None:
    for table in comparisons(result):
        shown = {column.header for column in fit(table, 80).columns}
        assert "matmul FLOPs fwd, dense" in shown
        assert shown & {"params", "model params"}
        # What was measured comes before what was counted.
        assert shown >= {"block latency ms", "Δ latency"} or shown >= {"matmul FLOPs fwd, exact", "KV bytes/token"}


def two_rows(make: SimpleNamespace, **second: Any) -> Comparison:
    """Two rows of the same parameters and products; what differs in the second. A third has other products."""
    counted = {"elementwise_ops": 8, "moved_bytes": 90, "fused_bytes": 70, "kernels": 2}
    costs = [counted, {**counted, **second}, {**counted, "matmul_flops": 10**12}]
    rows = [
        make.combination(n, {"residual": n}, [make.cost(make.prefill, **c)]) for n, c in zip("abc", costs, strict=True)
    ]
    (table,) = comparisons(make.document(rows, {"residual": ["a", "b", "c"]}))
    return table


@pytest.mark.parametrize(("key", "header"), [("kernels", "kernels"), ("moved_bytes", "moved bytes")])
def test_a_column_that_alone_tells_rows_apart_outlives_others(make: SimpleNamespace, key: str, header: str) -> None:
    same, different = two_rows(make), two_rows(make, **{key: 200})
    assert header in fit(same, 55).left_out
    assert header not in fit(different, 55).left_out
    assert "params" not in fit(different, 20).left_out, "parameters stay to the last"


def test_of_columns_that_tell_the_same_rows_apart_the_first_stays(make: SimpleNamespace) -> None:
    fitted = fit(two_rows(make, moved_bytes=200, kernels=3, elementwise_ops=9), 55)
    assert "moved bytes" not in fitted.left_out
    assert {"kernels", "elementwise ops"} <= set(fitted.left_out)


def test_exact_products_that_are_the_dense_ones_go_first(make: SimpleNamespace) -> None:
    rows = [make.combination("a", {}, [make.cost(make.decode, matmul_flops=6, matmul_flops_exact=6)])]
    (table,) = comparisons(make.document(rows))
    for width in WIDTHS:
        left_out = fit(table, width).left_out
        assert "matmul FLOPs fwd, exact" in left_out or not left_out


def test_an_axis_is_a_column_where_there_is_room(make: SimpleNamespace) -> None:
    (table, _) = comparisons(make.study())
    assert [column.header for column in fit(table, 200).columns[:4]] == ["norm", "activation", "attention", "residual"]
    assert fit(table, 80).columns[0] == table.label


def test_wide_screens_leave_nothing_out(make: SimpleNamespace) -> None:
    assert "left out" not in terminal(make.study(), width=200, color=False)
    assert "left out" in terminal(make.study(), width=80, color=False)


def test_color_only_adds_style(result: dict[str, Any]) -> None:
    plain, styled = (terminal(result, width=80, color=color) for color in (False, True))
    assert "\x1b" not in plain
    assert "\x1b[1m" in styled
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        styled = styled.replace(code, "")
    assert styled == plain


def test_names_cannot_send_control_sequences(make: SimpleNamespace) -> None:
    document = make.model()
    document["blueprint"]["name"] = "[red]\x1b[2J"
    text = terminal(document, width=80, color=False)
    assert "[red]" in text
    assert "\x1b" not in text


def test_a_study_with_nothing_left_still_prints(make: SimpleNamespace) -> None:
    document = make.document([make.skipped("mha", {"attention": "mha"}, "no")], {"attention": ["mha"]})
    assert "skipped: no" in terminal(document, width=80, color=False)
