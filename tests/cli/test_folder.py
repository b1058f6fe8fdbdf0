"""The folder of `--out`: all files or none."""

from pathlib import Path

import pytest

from explorer.cli import folder
from explorer.cli.folder import opened, write
from explorer.errors import UsageError


def test_files_are_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("before", encoding="utf-8")
    real = folder._temporary

    def full_disk(path: Path, text: str) -> Path:
        if text == "second":
            raise OSError(28, "No space left on device")
        return real(path, text)

    monkeypatch.setattr(folder, "_temporary", full_disk)
    with pytest.raises(UsageError, match="No space left on device"):
        write(tmp_path, {"a.txt": "first", "b.txt": "second"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "before"


def test_line_ends_are_the_same_everywhere(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "one\ntwo Δ\n"})
    assert (tmp_path / "a.txt").read_bytes() == "one\ntwo Δ\n".encode()


def test_only_empty_folders_made_here_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    with pytest.raises(RuntimeError, match="work"), opened(kept / "a" / "b"):
        raise RuntimeError(f"work in {[path.name for path in kept.iterdir()]}")
    assert list(kept.iterdir()) == []
    with opened(kept), opened(None):
        pass
    assert kept.is_dir()
