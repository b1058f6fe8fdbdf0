"""The folder of `--out`: refused before the work if nothing can be written there, filled all at once after it."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from explorer.cli.formats import TABLE
from explorer.errors import UsageError

FEW, MANY = ("result.json", "table.md", "table.csv"), ("study.json", TABLE)
"""Files of a run of few rows, and of one of many."""
VERDICT = ("result.json", "verdict.txt")
"""Files of two blueprints that were timed against each other."""
BLUEPRINT, OPTIONS = "blueprint.yaml", "options.yaml"
_RESULTS = tuple(dict.fromkeys((*FEW, *MANY, *VERDICT, BLUEPRINT)))


@contextmanager
def opened(path: Path | None) -> Iterator[None]:
    """Make the folder if it is missing and see that it can be written to; None does nothing.

    Folders made here are removed again, as far as they are empty, when the work inside fails.
    Raises: UsageError where it cannot be made or written to.
    """
    made = [] if path is None else _missing(path)
    try:
        if path is not None:
            _prove_writable(path)
        yield
    except BaseException:
        _discard(made)
        raise


def _missing(path: Path) -> list[Path]:
    """The folder and those above it that do not exist, deepest first."""
    try:
        return [folder for folder in (path, *path.parents) if not folder.exists()]
    except OSError as error:
        raise _refused(path, error) from error


Content = Iterable[str] | Callable[[Path], None]
"""A text, its pieces, or what writes a file at a path."""


def write(path: Path, contents: Mapping[str, Content], stale: Iterable[str] = ()) -> None:
    """Write a file per name, each complete or not at all.

    stale: files of an earlier run that would now say something else; they are removed.
    Raises: UsageError where the disk refuses.
    """
    written: dict[Path, Path] = {}
    try:
        for name, content in contents.items():
            written[path / name] = source = _temporary(path, () if callable(content) else content)
            if callable(content):
                content(source)
        for target, source in written.items():
            source.replace(target)
        for name in stale:
            (path / name).unlink(missing_ok=True)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        for source in written.values():
            source.unlink(missing_ok=True)


def write_result(path: Path, contents: Mapping[str, Content]) -> None:
    """Write the files of a result in place of those of an earlier one. Raises: as `write`."""
    write(path, contents, stale=[name for name in _RESULTS if name not in contents])


def refuse_foreign(path: Path | None) -> None:
    """A folder in which files of our names are somebody else's, without the options of a run, is not written to.

    Raises: UsageError.
    """
    if path is None:
        return
    try:
        ours = (path / OPTIONS).exists()
        others = [name for name in (*_RESULTS, OPTIONS) if (path / name).exists()]
    except OSError as error:
        raise _refused(path, error) from error
    if others and not ours:
        raise UsageError(
            f"--out {path}: {', '.join(others)} would be overwritten, and no run wrote it; name another folder"
        )


def refuse_sources(path: Path | None, *sources: str) -> None:
    """A blueprint that is read may not be among the files of an earlier run that a result takes the place of.

    Raises: UsageError.
    """
    if path is not None and (path / BLUEPRINT).resolve() in map(Path.resolve, map(Path, sources)):
        raise UsageError(f"--out {path}: {BLUEPRINT} there is read, and would be removed; name another folder")


def _prove_writable(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        _temporary(path, "").unlink()
    except OSError as error:
        raise _refused(path, error) from error


def _discard(folders: list[Path]) -> None:
    """Remove folders, deepest first, up to one that holds something."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _temporary(folder: Path, text: Iterable[str]) -> Path:
    handle, name = tempfile.mkstemp(dir=folder, prefix=".explorer-")
    path = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(text)
        path.chmod(0o666 & ~_umask())  # mkstemp's 0600 would hide the results from a group that shares the folder
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refused(path: Path, error: OSError) -> UsageError:
    return UsageError(f"--out {path}: cannot write there: {error.strerror or error}; name a folder that can be written")
