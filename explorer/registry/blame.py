"""What an exception of a plugin says, with the line of the plugin's own code that it comes from."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path

import pluggy

# Their lines stand in a traceback without being the plugin's: ours, and what calls a plugin on our behalf.
_PASSED_THROUGH = (
    Path(__file__).parents[1],
    *(Path(str(file)).parent for file in (importlib.__file__, pluggy.__file__)),
)


def told(error: BaseException) -> str:
    """``NameError: name 'x' is not defined (lab/norms.py:7)``."""
    name = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{name}: {error.msg} ({error.filename}:{error.lineno})"
    line = _line(error)
    return f"{name}: {error}{f' ({line})' if line else ''}"


def told_briefly(error: BaseException) -> str:
    """``told`` with the first line of a message only: torch's run over pages."""
    line = _innermost(error)
    first = next(iter(str(error).splitlines()), "").strip()
    return f"{type(error).__name__}: {first}{f' ({line})' if line else ''}"


def _line(error: BaseException) -> str | None:
    """The deepest line in the folder where the plugin is entered: what it calls in a library is not where to look."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_plugins(frame.filename)]
    inside = [frame for frame in frames if _is_beside(Path(frame.filename), Path(frames[0].filename).parent)]
    return f"{inside[-1].filename}:{inside[-1].lineno}" if inside else None


def _innermost(error: BaseException) -> str | None:
    """The deepest line that is neither ours nor torch's: a component may call another one that fails."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_plugins(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _is_plugins(file: str) -> bool:
    path = Path(file)
    torch = "site-packages" in path.parts and path.parts[path.parts.index("site-packages") + 1] == "torch"
    return not (file.startswith("<frozen ") or torch or any(path.is_relative_to(folder) for folder in _PASSED_THROUGH))


def _is_beside(file: Path, folder: Path) -> bool:
    # An environment may lie in the user's own folder.
    return file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts
