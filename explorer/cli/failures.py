"""What went wrong becomes a message on standard error and an exit code.

0 done; 1 finished, but a measurement failed (or explorer itself did); 2 wrong input; 130 interrupted.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from explorer.errors import BlueprintError, ExplorerError, MeasureError, RefusedError

INTERRUPTED = 130


@contextmanager
def exit_codes(debug: bool) -> Iterator[None]:
    """Turn exceptions into messages and exit codes; with ``debug`` the traceback comes first."""
    try:
        yield
    except (typer.Exit, SystemExit):
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        typer.echo(_message(error), err=True)
        sys.exit(_code(error))


def _message(error: Exception) -> str:
    if isinstance(error, BlueprintError | RefusedError):
        return str(error)  # starts with file:line:column, which editors can follow
    if isinstance(error, ExplorerError):
        return f"error: {error}"
    return f"error in explorer itself: {type(error).__name__}: {error} (--debug shows where)"


def _code(error: Exception) -> int:
    return 2 if isinstance(error, ExplorerError) and not isinstance(error, MeasureError) else 1
