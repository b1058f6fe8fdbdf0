"""Text in columns, for terminals: wide characters count twice, numbers are never broken."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

GAP = 2
HANG, ROOMY = 2, 12
"""Text that goes on in the next line is indented there, in columns that have the room."""

_WORDS = re.compile(r"\s*\S+\s*")
_INSIDE_WORDS = re.compile(r"(?<=[:,/])")


@dataclass(frozen=True)
class GridColumn:
    """A header above cells, ``width`` cells of the screen wide, numbers to the right."""

    header: str
    cells: Sequence[str]
    width: int
    right: bool = False


@dataclass(frozen=True)
class Line:
    """One line of a grid; ``row`` is the index of the row it belongs to, None in the header."""

    text: str
    row: int | None


def wrap(text: str, width: int, hang: int = 0) -> list[str]:
    """The text in lines of at most ``width`` cells, broken at blanks; longer words after ``:``, ``,`` or ``/``.

    hang: blanks in front of each line but the first.
    """
    lines = [""]
    for piece in _pieces(text, width - hang):
        if lines[-1].strip() and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append(" " * hang)
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def _pieces(text: str, width: int) -> Iterator[str]:
    for word in _WORDS.findall(text):
        if cell_len(word.rstrip()) <= width:
            yield word
            continue
        for part in _INSIDE_WORDS.split(word):
            yield from chop_cells(part, width) if cell_len(part.rstrip()) > width else [part]


def widest(texts: Sequence[str]) -> int:
    """Cells of the longest text."""
    return max(map(cell_len, texts), default=0)


def longest_word(text: str) -> int:
    """Cells of the longest word; a slash may end a word."""
    return widest(text.replace("/", "/ ").split())


def grid(columns: Sequence[GridColumn]) -> list[Line]:
    """Header, rule and rows."""
    rule = (" " * GAP).join("─" * column.width for column in columns)
    lines = [Line(text, None) for text in [*_row(columns, [column.header for column in columns], header=True), rule]]
    for index, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
        lines += [Line(text, index) for text in _row(columns, cells)]
    return lines


def _row(columns: Sequence[GridColumn], cells: Sequence[str], *, header: bool = False) -> list[str]:
    """The lines of one row; a header stands on its rule, cells hang from the top."""
    hangs = [0 if header or column.right or column.width < ROOMY else HANG for column in columns]
    wrapped = [wrap(cell, column.width, hang) for cell, column, hang in zip(cells, columns, hangs, strict=True)]
    height = max(map(len, wrapped))
    blanks = [[""] * (height - len(lines)) for lines in wrapped]
    filled = [above + lines if header else lines + above for lines, above in zip(wrapped, blanks, strict=True)]
    return [(" " * GAP).join(map(_padded, line, columns)).rstrip() for line in zip(*filled, strict=True)]


def _padded(text: str, column: GridColumn) -> str:
    blanks = " " * (column.width - cell_len(text))
    return blanks + text if column.right else text + blanks
