"""Text in columns: nothing is lost, nothing is wider than its column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from explorer.report.grid import GAP, GridColumn, grid, wrap

WRAPPED = [
    ("rmsnorm, gqa:kv_heads=8, add", 15, ["rmsnorm,", "gqa:kv_heads=8,", "add"]),
    ("gqa:kv_heads=8:qk_norm=rmsnorm", 16, ["gqa:kv_heads=8:", "qk_norm=rmsnorm"]),
    ("KV bytes/token", 6, ["KV", "bytes/", "token"]),
    ("abcdefgh", 3, ["abc", "def", "gh"]),
    ("多头注意力", 4, ["多头", "注意", "力"]),
    ("", 5, [""]),
]


@pytest.mark.parametrize(("text", "width", "lines"), WRAPPED)
def test_wrap(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


@given(st.text("ab :,/=多", max_size=40), st.integers(4, 30), st.sampled_from([0, 2]))
def test_wrap_keeps_every_letter_and_the_width(text: str, width: int, hang: int) -> None:
    lines = wrap(text, width, hang)
    assert max(map(cell_len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_grid_aligns_columns() -> None:
    columns = [GridColumn("name", ["多头", "gqa"], 6), GridColumn("matmul FLOPs", ["1.000 M", "12"], 7, right=True)]
    header_1, header_2, rule, first, second = grid(columns)
    assert header_1.text == "         matmul"
    assert header_2.text == "name      FLOPs"
    assert rule.text == "─" * 6 + " " * GAP + "─" * 7
    assert (first.text, first.row) == ("多头    1.000 M", 0)
    assert (second.text, second.row) == ("gqa" + " " * 10 + "12", 1)
