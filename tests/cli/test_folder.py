"""The folder of `--out`: all files or none."""

from pathlib import Path

import pytest

from explorer.cli import folder
from explorer.cli.folder import opened, refuse_foreign, refuse_sources, write, write_result
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


def test_a_folder_with_files_of_others_is_not_written_to(tmp_path: Path) -> None:
    refuse_foreign(tmp_path)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    refuse_foreign(tmp_path)
    (tmp_path / "table.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match=r"table\.csv would be overwritten, and no run wrote it; name another folder"):
        refuse_foreign(tmp_path)
    (tmp_path / "options.yaml").write_text("", encoding="utf-8")
    refuse_foreign(tmp_path)


def test_a_result_takes_the_place_of_another_kind_and_of_nothing_else(tmp_path: Path) -> None:
    for name in ("result.json", "table.csv", "blueprint.yaml", "notes.txt"):
        (tmp_path / name).write_text("before", encoding="utf-8")
    write_result(tmp_path, {"result.json": "{}", "verdict.txt": "A"})
    assert {path.name for path in tmp_path.iterdir()} == {"result.json", "verdict.txt", "notes.txt"}


def test_a_blueprint_that_is_read_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"blueprint\.yaml there is read, and would be removed; name another folder"):
        refuse_sources(tmp_path / "run", "gpt2-small", "run/blueprint.yaml")
    refuse_sources(tmp_path / "run", "gpt2-small", "other/blueprint.yaml")
    refuse_sources(None, "blueprint.yaml")
