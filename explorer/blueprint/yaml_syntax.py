"""What PyYAML's scanner and parser refuse, in one line and with what would be valid."""

from __future__ import annotations

import re

import yaml
from yaml.reader import ReaderError

from explorer.errors import Problem, Where, hints

_UNCLOSED = ("the text ends inside a list or mapping", "the text ends inside a quoted text")

# (in PyYAML's message, ours, what to do). The first that fits; without one PyYAML's own words stand.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    ("'<stream end>'", _UNCLOSED[0], "close it with ] or }"),
    ("unexpected end of stream", _UNCLOSED[1], "close it with the quote that opens it"),
    ("expected '<document start>'", "the text goes on behind the end of its value", "close each bracket once"),
    ("expected the node content", "a value is missing here", "text that starts with a sign of YAML must be quoted"),
    ("expected ',' or", "{problem}", "values of a list or mapping stand between commas"),
    (r"'\t' that cannot start any token", "a tab stands where YAML wants spaces", "indent with spaces"),
    ("could not find expected ':'", "this line is no key: value", "a space must follow the colon"),
    (
        "mapping values are not allowed here",
        "a second key: value on one line, or a line that is indented too far",
        "text that holds a colon and a space must be quoted",
    ),
    ("that cannot start any token", "{problem}", "text that starts with this character must be quoted"),
    ("expected <block end>", "{problem}", "the fields of one mapping start in the same column"),
)


def syntax_problem(error: yaml.YAMLError, text: str, file: str | None) -> Problem:
    """The Problem that says what ``error`` says, at the place in ``text`` where the reader would look for it."""
    if isinstance(error, ReaderError):
        return _unreadable(error, text, file)
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(Where(file), "", _one_line(str(error)))
    problem = _one_line(error.problem or "not valid YAML")
    opened = _where(error.context_mark, file)
    started = f"{error.context}, which starts at {opened}" if error.context and opened else None
    for fragment, message, hint in _KNOWN:
        if fragment in problem:
            ours = message.format(problem=problem)
            # A line without its colon is noticed only on the next one.
            where = opened if fragment.startswith("could not find") else None
            lines = (hint, f"it is opened at {opened}" if file and message in _UNCLOSED else None)
            return Problem(where or _where(error.problem_mark, file) or Where(file), "", ours, hints(*lines))
    return Problem(_where(error.problem_mark, file) or opened or Where(file), "", problem, hints(started))


def _unreadable(error: ReaderError, text: str, file: str | None) -> Problem:
    before = text[: error.position]
    line_start = before.rfind("\n") + 1
    where = Where(file, before.count("\n") + 1, len(before) - line_start + 1)
    return Problem(where, "", f"the character U+{ord(text[error.position]):04X} is not allowed in YAML")


def _where(mark: yaml.Mark | None, file: str | None) -> Where | None:
    return Where(file, mark.line + 1, mark.column + 1) if mark else None


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
