"""A result as GitHub Markdown: a table per workload, then the notes as a list."""

import re
from collections.abc import Sequence

from explorer.report.breakdown import breakdowns
from explorer.report.column import Column
from explorer.report.comparison import Comparison, comparisons
from explorer.report.document import Document
from explorer.report.notes import Note, notes

_SPECIAL = re.compile(r"([\\|*`<>\[\]#])")


def markdown(document: Document, *, breakdown: bool = False) -> str:
    """The whole report; every measure is shown. breakdown: with what each kind of part takes."""
    blocks = [_table(table) for table in (*comparisons(document), *(breakdowns(document) if breakdown else ()))]
    listed = [line for note in notes(document, breakdown=breakdown) for line in _note(note)]
    return "\n\n".join([*blocks, "\n".join(listed)]) + "\n"


def _table(table: Comparison) -> str:
    columns = (*table.choices, *table.measures)
    rows = zip(*(column.cells for column in columns), strict=True)
    lines = [_row([column.header for column in columns]), f"|{'|'.join(map(_rule, columns))}|", *map(_row, rows)]
    return f"### {escaped(table.title)}\n\n" + "\n".join(lines)


def _rule(column: Column) -> str:
    return " ---: " if column.numeric else " --- "


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _note(note: Note) -> list[str]:
    if len(note.lines) == 1:
        return [f"- {escaped(note.head)}: {escaped(note.lines[0])}"]
    return [f"- {escaped(note.head)}:", *(f"  - {escaped(line)}" for line in note.lines)]


def escaped(text: str) -> str:
    """The text with a backslash before each sign that Markdown would take for itself, the pipe of tables included."""
    return _SPECIAL.sub(r"\\\1", text)
