"""Standard output: how wide it is, whether it takes colour, and text for it."""

import io
import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

CLOSED_PIPE = 141
"""128 + SIGPIPE: what a shell reports for a program whose reader went away."""


def width() -> int:
    """Columns of the terminal; COLUMNS overrides, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color(stream: TextIO | None = None) -> bool:
    """Whether standard output, or that stream, takes colour: a terminal, and NO_COLOR is not set (no-color.org)."""
    return is_terminal(stream or sys.stdout) and not os.environ.get("NO_COLOR")


def complain(line: str) -> None:
    """Write a line to standard error, in red where that takes colour."""
    print(f"\x1b[31m{line}\x1b[0m" if has_color(sys.stderr) else line, file=sys.stderr)


def emit(text: str | Iterable[str], *, utf8: bool = False) -> None:
    """Write text, or the pieces of one, to standard output.

    utf8: a document for other programs, whatever the terminal's encoding is.
    """
    if utf8 and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        for piece in [text] if isinstance(text, str) else text:
            sys.stdout.write(piece)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)
