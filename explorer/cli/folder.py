"""The folder of `--out`: refused before the work if nothing can be written there, filled all at once after it."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from explorer.errors import UsageError


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


MEASUREMENTS = "measurements.jsonl"


def measurements(path: Path | None, resume: bool) -> Path | None:
    """Where a run keeps what it measures until it is done; None without a folder.

    Raises: UsageError where an interrupted run left some and it is not said what to do with them.
    """
    if path is None:
        if resume:
            raise UsageError("--resume goes on in the folder of --out; name it")
        return None
    kept = path / MEASUREMENTS
    if kept.exists() and not resume:
        raise UsageError(
            f"--out {path}: an interrupted run left {MEASUREMENTS} there: add --resume to go on with it, or delete it"
        )
    return kept


def forget(kept: Path, measurements: Iterable[Mapping[str, Any]]) -> None:
    """Drop what the result of a run holds now; what another run left there stays."""
    from explorer.latency.store import Store

    Store(kept).forget({entry["job"] for entry in measurements})


def refuse_foreign(path: Path | None, names: Collection[str], mark: str) -> None:
    """A folder in which files of our names are somebody else's is not written to.

    mark: the file that only a run leaves. Raises: UsageError.
    """
    if path is None:
        return
    try:
        ours = (path / mark).exists()
        others = [name for name in names if (path / name).exists()]
    except OSError as error:
        raise _refused(path, error) from error
    if others and not ours:
        raise UsageError(
            f"--out {path}: {', '.join(others)} would be overwritten, and no run wrote it; name another folder"
        )


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
