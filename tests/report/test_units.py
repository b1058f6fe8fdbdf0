"""Numbers for readers: what is shown is the number, rounded to four digits, never another one."""

import pytest

from explorer.report.units import BYTES, OPERATIONS, PARAMS, exact, four_digits, percent, plural, printable, short

SHORT = [
    (None, PARAMS, "unknown"),
    (0, PARAMS, "0"),
    (92_416, PARAMS, "92,416"),
    (999_999, PARAMS, "999,999"),
    (1_000_000, PARAMS, "1.000 M"),
    (218_112_000, PARAMS, "218.1 M"),
    (999_949_999, PARAMS, "999.9 M"),
    (999_950_000, PARAMS, "1.000 B"),
    (8_030_261_248, PARAMS, "8.030 B"),
    (175_000_000_000, PARAMS, "175.0 B"),
    (32_938_104_193_024, OPERATIONS, "32.94 T"),
    (893_353_197_568, OPERATIONS, "893.4 G"),
    (2**62, OPERATIONS, "4.612 E"),
    (10**22, OPERATIONS, "10,000 E"),
    (8_388_608, BYTES, "8.389 MB"),
    (524_288, BYTES, "524,288"),
]


@pytest.mark.parametrize(("value", "steps", "text"), SHORT)
def test_short(value: int | None, steps: tuple[tuple[float, str], ...], text: str) -> None:
    assert short(value, steps) == text


PERCENT = [
    (100, 100, "0%"),
    (0, 0, "0%"),
    (112.5, 100, "+12.5%"),
    (96.8, 100, "-3.2%"),
    (400, 100, "+300%"),
    (100_004, 100_000, "+0.004%"),
    (1_000_000_001, 1_000_000_000, "+<0.001%"),
    (999_999_999, 1_000_000_000, "-<0.001%"),
    (5, 0, "from 0"),
    (None, 100, "–"),
    (100, None, "–"),
]


@pytest.mark.parametrize(("value", "base", "text"), PERCENT)
def test_percent_is_zero_only_for_equal_numbers(value: float | None, base: float | None, text: str) -> None:
    assert percent(value, base) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12.345, "12.35"), (0.0123, "0.01230"), (999.96, "1,000"), (12345.6, "12,346"), (8.0, "8.000")]
)
def test_four_digits(value: float, text: str) -> None:
    assert four_digits(value) == text


def test_exact_and_printable() -> None:
    assert exact(131_072) == "131,072"
    assert exact(16 / 3) == "5.33"
    assert exact(None) == "unknown"
    assert printable("a\x1b[31mb\nc") == "a [31mb c"


@pytest.mark.parametrize(
    ("count", "word", "text"),
    [(1, "row", "1 row"), (1200, "row", "1,200 rows"), (1, "process", "1 process"), (2, "process", "2 processes")],
)
def test_words_of_many(count: int, word: str, text: str) -> None:
    assert plural(count, word) == text
