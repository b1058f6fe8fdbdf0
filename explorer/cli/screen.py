"""Standard output: how wide it is, whether it takes colour, and text for it."""

import io
import os
import shutil
import sys
from typing import TextIO

CLOSED_PIPE = 141
"""128 + SIGPIPE: what a shell reports for a program whose reader went away."""


def width() -> int:
    """Columns of the terminal; COLUMNS overrides, 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color() -> bool:
    """Whether standard output takes colour: a terminal, and NO_COLOR is not set (https://no-color.org)."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def emit(text: str, *, utf8: bool = False) -> None:
    """Write to standard output. ``utf8``: a document for other programs, whatever the terminal's encoding is."""
    if utf8 and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit: give it somewhere to write.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(CLOSED_PIPE)
