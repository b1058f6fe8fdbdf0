"""Everything that can go wrong on purpose.

    ExplorerError
     ├─ BlueprintError   what a user wrote in a blueprint: all problems at once, each with its place
     ├─ UsageError       a wrong option or argument
     ├─ RefusedError     a component cannot be built so (an error in a blueprint, a skipped row in a study)
     ├─ PluginError      what a plugin package did wrong; names its distribution and version
     └─ MeasureError     a measurement that failed

A message says where, what with the value, and what would be valid.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Where:
    """A place in a text: file (or "<dict>", "--set" ...), line and column counted from 1."""

    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = [self.file or "", *(str(n) for n in (self.line, self.column) if n is not None)]
        return ":".join(part for part in parts if part)


NOWHERE = Where()


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, at which path, what, and hints on what would be valid."""

    where: Where
    path: str
    message: str
    hints: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = ": ".join(part for part in (str(self.where), self.path, self.message) if part)
        return "\n".join([head, *(f"  {hint}" for hint in self.hints)])


class ExplorerError(Exception):
    """The root of all errors that explorer raises on purpose."""


class BlueprintError(ExplorerError):
    """What a user wrote in a blueprint cannot be used; carries every problem found."""

    def __init__(self, problems: Sequence[Problem] | Problem):
        found = (problems,) if isinstance(problems, Problem) else problems
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(found))
        super().__init__("\n".join(map(str, self.problems)))


class UsageError(ExplorerError):
    """An option or argument cannot be used."""


class RefusedError(ExplorerError):
    """A component refuses its sizes; ``where`` is the component's place in the blueprint."""

    def __init__(self, message: str, where: Where | None = None):
        self.message = message
        self.where = where or NOWHERE
        super().__init__(f"{self.where}: {message}" if str(self.where) else message)


class PluginError(ExplorerError):
    """A plugin package does something the plugin contract does not allow."""


class MeasureError(ExplorerError):
    """A measurement failed."""


_NO_MEMORY = re.compile("out of memory|not enough memory|(can't|cannot|unable to) allocate", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it is a MemoryError or one of torch's: its CPU allocator only says so in a RuntimeError's text."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and bool(_NO_MEMORY.search(str(error))))


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """``did you mean 'kv_heads'?`` for the candidate closest to ``word``, or None where nothing is close."""
    close = difflib.get_close_matches(word, list(candidates), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else None


def hints(*lines: str | None) -> tuple[str, ...]:
    """The lines that are there, as a Problem takes them."""
    return tuple(line for line in lines if line)
