"""One column of a comparison table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from explorer.report.rows import Row
from explorer.report.units import percent

Figure = Callable[[Row], float | None]


@dataclass(frozen=True)
class Column:
    """A header with its unit and one cell per row. A narrow screen leaves out the highest ``rank`` first.

    tells: its cells are figures that may tell rows apart, no differences, which repeat what other columns say.
    """

    header: str
    cells: tuple[str, ...]
    rank: int = 0
    numeric: bool = True
    tells: bool = True


def figures(header: str, rows: Sequence[Row], cell: Callable[[Row], str], rank: int) -> Column:
    """A column whose cells are read off each row."""
    return Column(header, tuple(cell(row) for row in rows), rank)


def change(header: str, rows: Sequence[Row], figure: Figure, rank: int, *, mark: str = "") -> Column:
    """100 (value - baseline) / baseline of each row in percent; ``mark`` stands in the baseline rows themselves."""
    cells = tuple(mark if row.is_baseline else _against_base(row, figure) for row in rows)
    return Column(header, cells, rank, tells=False)


def _against_base(row: Row, figure: Figure) -> str:
    return percent(figure(row), figure(row.base) if row.base else None)
