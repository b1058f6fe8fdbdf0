"""Progress on standard error: a bar on a terminal, a plain line now and then elsewhere, nothing for quick work."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from explorer.cli.screen import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

BAR_AFTER_S, BAR_EVERY_S = 1.0, 0.1
LINE_EVERY_S = 5.0


class Progress:
    """Call it with (stage, done, total); it shows itself once the work takes longer than a moment."""

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stderr)
        self._due = time.monotonic() + (BAR_AFTER_S if self._terminal else LINE_EVERY_S)
        self._bar: Bar | None = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if time.monotonic() < self._due or (self._bar is None and done >= total):
            return
        if self._terminal:
            self._draw(stage, done, total)
        else:
            print(f"{stage}: {done:,} of {total:,}", file=sys.stderr, flush=True)
        self._due = time.monotonic() + (BAR_EVERY_S if self._terminal else LINE_EVERY_S)

    def _draw(self, stage: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.add_task(stage)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], description=stage, completed=done, total=total, refresh=True)


def _new_bar() -> "Bar":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Drawn from __call__ only: a thread that redraws would disturb what is being measured.
    return Bar(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
