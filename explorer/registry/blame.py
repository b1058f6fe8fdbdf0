"""What an exception of a plugin says, with the line of the plugin's own code that it comes from."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

import pluggy

# Their lines stand in a traceback without being the plugin's.
_PASSED_THROUGH = tuple(Path(str(file)).parent for file in (__file__, importlib.__file__, pluggy.__file__))


def told(error: BaseException) -> str:
    """``NameError: name 'x' is not defined (lab/norms.py:7)``."""
    name = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name}: {error.msg} ({error.filename}:{error.lineno})"
    line = _line(error)
    return f"{name}: {error}{f' ({line})' if line else ''}"


def _line(error: BaseException) -> str | None:
    """The deepest line in the folder where the plugin is entered: what it calls in a library is not where to look."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_plugins(frame.filename)]
    inside = [frame for frame in frames if _is_beside(Path(frame.filename), Path(frames[0].filename).parent)]
    return f"{inside[-1].filename}:{inside[-1].lineno}" if inside else None


def _is_plugins(file: str) -> bool:
    return not file.startswith("<frozen ") and not any(Path(file).is_relative_to(folder) for folder in _PASSED_THROUGH)


def _is_beside(file: Path, folder: Path) -> bool:
    # An environment may lie in the user's own folder.
    return file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts
