"""What to make of an exception in a pass on meta: a forward that meta cannot run, a plugin's fault, or our own."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import ExplorerError, PluginError
from explorer.registry.blame import told_briefly

# What torch says, in the order in which it is looked for: an operator wants to read values, which meta tensors do not
# have; a size is beyond its integers; a function does not know meta.
_WHY: tuple[tuple[str, tuple[type[Exception], ...], str], ...] = (
    (
        "meta tensor|meta device|data-?dependent|aten::_local_scalar_dense",
        (RuntimeError,),
        "it needs values and cannot be run on meta",
    ),
    ("overflow", (RuntimeError, OverflowError), "its tensors are too large"),
    (r"\bmeta\b", (Exception,), "it cannot be run on meta"),
)
_COST = Path(__file__).parents[1]
_BUGS = (AssertionError, KeyError, ArithmeticError, AttributeError, NameError)
"""What torch's code in C++, which leaves no line of its own, does not raise."""


class CannotRun(Exception):
    """Code of others failed; the message says how."""


@dataclass
class Trouble:
    """Why a pass could not be observed; empty as long as it can."""

    reason: str = ""


@contextmanager
def understood(label: str) -> Iterator[Trouble]:
    """Inside, what cannot be run on meta leaves its reason, and any other failure of a plugin becomes a PluginError.

    Raises: PluginError that says where in whose code a pass failed; an error of counting itself as it is.
    """
    trouble = Trouble()
    try:
        yield trouble
    except ExplorerError:
        raise
    except (Exception, SystemExit) as error:
        if is_our_own(error):
            raise
        reason = _why_not_on_meta(error)
        if reason is None:
            raise PluginError(f"{label} cannot be run: {told_briefly(error)}") from error
        trouble.reason = f"{reason}: {told_briefly(error)}"


@contextmanager
def foreign() -> Iterator[None]:
    """Inside, code of others runs: its failures become CannotRun; errors of explorer, and of counting, stay.

    Raises: CannotRun.
    """
    try:
        yield
    except (ExplorerError, CannotRun):
        raise
    except Exception as error:
        if is_our_own(error):
            raise
        raise CannotRun(told_briefly(error)) from error


def is_our_own(error: BaseException) -> bool:
    """Whether counting itself has a fault: a broken assumption or a slip in the code of this package."""
    if not isinstance(error, _BUGS):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).is_relative_to(_COST)


def _why_not_on_meta(error: BaseException) -> str | None:
    for text, kinds, why in _WHY:
        if isinstance(error, kinds) and re.search(text, str(error), re.IGNORECASE):
            return why
    return None
