"""A result for a terminal of a given width: a table per workload, then the notes."""

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.report.breakdown import breakdowns
from explorer.report.column import Column
from explorer.report.comparison import Comparison, comparisons
from explorer.report.document import Document
from explorer.report.grid import GAP, HANG, GridColumn, grid, longest_word, widest, wrap
from explorer.report.notes import Note, notes

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
NARROWEST_NAME, WIDEST_NAME = 16, 32
INDISPENSABLE = 3
"""Up to this rank a column stays even where one that tells rows apart goes."""
SLACK = 4
"""What breaking at words costs a line, about."""


@dataclass(frozen=True)
class Fit:
    """The columns that a width has room for, how wide each is, and the headers of those left out."""

    columns: tuple[Column, ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...]


def terminal(document: Document, *, width: int, color: bool, breakdown: bool = False) -> str:
    """The whole report; no line is longer than ``width`` cells, from about 40 cells on.

    breakdown: with what each kind of part takes.
    """
    found_tables = [*comparisons(document), *(breakdowns(document) if breakdown else ())]
    tables = [(table, fit(table, width)) for table in found_tables]
    blocks = ["\n".join(_table(table, fitted, width, color)) for table, fitted in tables]
    left_out = dict.fromkeys(header for _, fitted in tables for header in fitted.left_out)
    shown = {column.header for _, fitted in tables for column in fitted.columns}
    found = notes(document, breakdown=breakdown, left_out=left_out, shown=shown)
    lines = [_styled(line, DIM, color) for note in found for line in _note(note, width)]
    return "\n\n".join([*blocks, "\n".join(lines)]) + "\n"


def fit(table: Comparison, width: int) -> Fit:
    """Leave out measures, those that say least first, until the rest fits beside the names of the rows."""
    measures = list(table.measures)
    while True:
        room = width - sum(_natural(column) + GAP for column in measures)
        for names in (table.choices, (table.label,)):
            if widths := _name_widths(names, room):
                return _fit(table, names, widths, measures)
        if len(measures) == 1:
            return _fit(table, (table.label,), (NARROWEST_NAME,), measures)
        measures.remove(_says_least(measures))


def _says_least(measures: Sequence[Column]) -> Column:
    """The last of the highest rank; one without which rows look alike that differ stays as long as others can go."""
    apart = _told_apart(measures)
    spare = [
        column
        for column in measures
        if column.rank > INDISPENSABLE
        and (not column.tells or _told_apart([other for other in measures if other is not column]) == apart)
    ]
    return max(reversed(spare or measures), key=lambda column: column.rank)


def _told_apart(measures: Sequence[Column]) -> int:
    """How many rows the figures tell apart."""
    return len(set(zip(*(column.cells for column in measures if column.tells), strict=True)))


def _fit(table: Comparison, names: Sequence[Column], widths: Sequence[int], measures: Sequence[Column]) -> Fit:
    left_out = tuple(column.header for column in table.measures if column not in measures)
    return Fit((*names, *measures), (*widths, *map(_natural, measures)), left_out)


def _natural(column: Column) -> int:
    return max(widest(column.cells), longest_word(column.header))


def _name_widths(names: Sequence[Column], room: int) -> tuple[int, ...]:
    """A width for each column that names the rows; empty where there is too little room for them."""
    if len(names) == 1:
        wanted = _natural(names[0])
        two_lines = min(WIDEST_NAME, max(NARROWEST_NAME, wanted // 2 + SLACK))
        return (min(wanted, room),) if room >= min(wanted, two_lines) else ()
    widths = tuple(min(_natural(column), WIDEST_NAME) for column in names)
    return widths if sum(widths) + GAP * (len(widths) - 1) <= room else ()


def _table(table: Comparison, fitted: Fit, width: int, color: bool) -> list[str]:
    columns = [
        GridColumn(column.header, column.cells, cells, right=column.numeric)
        for column, cells in zip(fitted.columns, fitted.widths, strict=True)
    ]
    title = [_styled(line, BOLD, color) for line in wrap(table.title, width)]
    bold = [compared and color for compared in table.baselines] if len(table.baselines) > 1 else [False]
    return title + [_styled(line.text, BOLD, color if line.row is None else bold[line.row]) for line in grid(columns)]


def _note(note: Note, width: int) -> list[str]:
    """ "head: line"; several lines are indented below the head."""
    if len(note.lines) == 1:
        return wrap(f"{note.head}: {note.lines[0]}", width, HANG)
    indented = [f"{' ' * HANG}{part}" for line in note.lines for part in wrap(line, width - HANG, HANG)]
    return [f"{note.head}:", *indented]


def _styled(text: str, style: str, color: bool) -> str:
    return f"{style}{text}{PLAIN}" if color else text
