"""The table of a cross-check: 80 columns, parts that add up, and red where nobody explains a number."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.cost.crosscheck.check import CrossCheck
from explorer.report.crosscheck import markdown, terminal
from tests.cost.crosschecked import BLOCK, FVCORE, checked, prefill, told


def entries() -> Iterator[tuple[CrossCheck, bool]]:
    yield checked({**BLOCK, "norm": "layernorm"}, prefill(2048)), True
    yield checked({**BLOCK, "norm": "layernorm"}, prefill(2048), off=1), False


def test_the_table_fits_80_columns_and_shows_what_is_unexplained_in_red() -> None:
    for check, right in entries():
        text = terminal([check.to_dict()], width=80, color=True)
        assert ("\x1b[31m" in text) is not right
        assert ("unexplained" in text) is not right
        plain = terminal([check.to_dict()], width=80, color=False)
        assert "\x1b" not in plain
        assert max(map(len, plain.splitlines())) <= 80
    assert f"{told(check, FVCORE).printed:,} MAC x 2" in plain
    assert "· fused attention not counted" in plain


def test_the_table_as_markdown() -> None:
    for check, right in entries():
        text = markdown([check.to_dict()])
        assert ("**unexplained -1**" in text) is not right
    assert f"| fvcore | {told(check, FVCORE).printed:,} MAC x 2 |" in text
    assert "fused attention not counted -536,870,912; operations of norms counted +1,310,720" in text


def test_what_did_not_run_says_why_in_the_table() -> None:
    check = CrossCheck("block", prefill(4).settled(), (), "there is nothing to run")
    for text in (terminal([check.to_dict()], width=80, color=False), markdown([check.to_dict()])):
        assert "there is nothing to run" in text
