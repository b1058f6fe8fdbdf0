"""What goes wrong with one candidate, kept as text so that the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from explorer.errors import ExplorerError, is_out_of_memory
from explorer.latency.raw import Failed

T = TypeVar("T")


@dataclass(frozen=True)
class Failure:
    """Why something has no times. details: the traceback as text: an exception would keep its tensors."""

    reason: str
    out_of_memory: bool = False
    details: str = ""

    def of(self, candidate: str, impl: str | None = None, regime: str | None = None) -> Failed:
        """The failure of a candidate, or of it in one implementation and regime."""
        return Failed(candidate, self.reason, impl, regime, self.out_of_memory, self.details)


def attempt(action: Callable[[], T], doing: str) -> T | Failure:
    """What the action returns, or the failure that its exception stands for; `doing` says during what.

    Our own errors speak for themselves. KeyboardInterrupt and SystemExit pass through.
    """
    try:
        return action()
    except Exception as error:  # a plugin may raise anything, and costs one candidate
        return _failure(error, doing)


def _failure(error: Exception, doing: str) -> Failure:
    short = is_out_of_memory(error)
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ExplorerError):
        return Failure(str(error), short, details)
    what = "out of memory" if short else type(error).__name__
    first_line = next(iter(str(error).splitlines()), "")
    return Failure(f"{what} while {doing}" + (f": {first_line}" if first_line else ""), short, details)
