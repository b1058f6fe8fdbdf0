"""The documentation is run: YAML blocks load, Python blocks execute, commands work and print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import explorer
from explorer.__main__ import main
from explorer.blueprint.fields import FIELDS
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry
from explorer.report.component_list import component_list

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fenced:
    """A fenced block of a page; file: the name behind its language, under which a reader saves it."""

    language: str
    file: str | None
    text: str
    line: int


def blocks(page: Path) -> Iterator[Fenced]:
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        yield Fenced(match[1], match[2], match[3], text[: match.start()].count("\n") + 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the repository's blueprints, as a reader has it."""
    (tmp_path / "blueprints").symlink_to(ROOT / "blueprints")
    lab = ROOT / "tests" / "fixtures" / "lab_norms"
    shutil.copy(lab / "example.yaml", tmp_path)
    monkeypatch.syspath_prepend(str(lab / "src"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(page: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {}
    for block in blocks(page):
        place = f"{page.name}:{block.line}"
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "yaml" and (named := re.match(r"# file: (\S+)", block.text)):
            (folder / named[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, place, "exec"), names)
            capsys.readouterr()
        elif block.language == "console":
            run_commands(block, place, capsys, monkeypatch)


def run_commands(
    block: Fenced, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each `$ explorer ...`; output that a page shows must be what is printed, error messages included."""
    for command, shown in commands(block.text):
        if command[0] == "PYTHONPATH=src":
            command = command[1:]  # the fixture has put it on the path
        if command[0] != "explorer":
            continue
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        expected = [line.rstrip() for line in shown]
        is_error = bool(stopped.value.code)
        output = [line.rstrip() for line in (printed.err if is_error else printed.out).splitlines()]
        assert not is_error or expected, f"{place}: {shlex.join(command)} failed:\n{printed.err}"
        if expected:
            assert output[: len(expected)] == expected, f"{place}: {shlex.join(command)}"


def commands(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Each command of a console block with the lines that follow it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *shown = part.rstrip("\n").split("\n")
        yield shlex.split(line), shown


INCLUDED = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_included_files_are_what_the_page_shows(page: Path) -> None:
    for name, shown in INCLUDED.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / name).read_text(encoding="utf-8") == shown, f"{page.name}: include {name} again"


def test_component_page_is_what_the_command_prints() -> None:
    """`explorer plugins list --format md`, of what this repository installs."""
    registry = load_registry()
    own = Registry(tuple(p for p in registry.packages if p.distribution == "architecture-explorer"))
    page = (ROOT / "docs" / "components.md").read_text(encoding="utf-8")
    assert component_list(own) in page, "print it again: explorer plugins list --format md"


def test_every_built_in_component_has_a_place_in_the_readme_of_plugins() -> None:
    text = (ROOT / "plugins" / "README.md").read_text(encoding="utf-8")
    assert [
        name for name in (c.name for kind in KINDS for c in load_registry().components(kind)) if f"`{name}`" not in text
    ] == []


def test_every_hook_is_documented() -> None:
    text = (ROOT / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")
    for kind in KINDS.values():
        assert f"`{kind.hook}()`" in text
        assert all(name in text for name in kind.menu)


def test_every_field_is_documented() -> None:
    text = (ROOT / "docs" / "blueprints.md").read_text(encoding="utf-8")
    assert [name for name in FIELDS if f"`{name}`" not in text] == []


def test_every_key_of_a_row_is_defined() -> None:
    """Keys of the JSON as `explorer.run` gives it; those of a workload stand in blueprints.md."""
    text = (ROOT / "docs" / "what-the-numbers-mean.md").read_text(encoding="utf-8")
    document = explorer.run({"dim": 8, "heads": 2, "layers": 1, "workloads": [{"tokens": 4}]}).to_dict()
    (row,) = document["combinations"]
    _, model = row["costs"]
    keys = {*row, *document["counts"], *model, *next(iter(model["breakdown"].values()))}
    keys |= {f"params.{key}" for key in row["params"] if key != "active_reason"}
    keys |= {f"memory.{key}" for key in model["memory"]}
    assert sorted(key for key in keys - {"params", "name", "workload"} if f"`{key}`" not in text) == []


def test_readme_commands_are_what_ci_runs() -> None:
    readme, ci = (ROOT / "README.md").read_text(encoding="utf-8"), (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in (
        "pip install -e . -c constraints.txt && explorer run blueprints/examples/quickstart.yaml",
        'pip install -e ".[test]" -c constraints.txt && pytest',
    ):
        assert command in readme
        assert command in ci


def test_every_link_to_a_file_resolves() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
