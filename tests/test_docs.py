"""The documentation is run: YAML blocks load, Python blocks execute, commands work and print what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import explorer
from explorer.__main__ import main
from explorer.blueprint.fields import FIELDS
from explorer.cli.app import app
from explorer.cli.latency_options import words
from explorer.cost.counting import settle
from explorer.latency.timing import Timing
from explorer.prediction.prediction import Prediction
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry
from explorer.report.component_list import component_list
from explorer.study.measured import Measured, untimed
from explorer.study.predicting import LOCAL, targets

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


def shell_commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Where each `explorer ...` of the `sh` blocks of a page stands, and its words."""
    for block in blocks(page):
        if block.language == "sh":
            for number, line in enumerate(block.text.splitlines(), block.line + 1):
                for one in " ".join(shlex.split(line, comments=True)).split(" && "):
                    if one.startswith("explorer "):
                        yield f"{page.name}:{number}", one.split()[1:]


SHELL = [found for page in PAGES for found in shell_commands(page)]


@pytest.mark.parametrize(("place", "command"), SHELL, ids=[place for place, _ in SHELL])
@pytest.mark.usefixtures("folder")
def test_commands_that_measure_would_run(place: str, command: list[str]) -> None:
    check(command)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("latency gpt2-small my-block.yaml --workload phase=decode,context=2048", "longer than the learned position"),
        ("latency gpt2-smal my-block.yaml", "gpt2-smal: no such file"),
        ("run llama-3-8b --hardwar l4", "No such option: --hardwar"),
        ("run llama-3-8b --hardware l5", "hardware 'l5' is not in the table"),
        ("calibrat", "explorer has no command 'calibrat'"),
    ],
)
def test_a_command_that_would_not_run_is_found(words: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        check(words.split())


def check(command: Sequence[str]) -> None:
    """Options, blueprints, workloads and devices are known; a blueprint called my-... is the reader's own."""
    parsed = options(command)
    axes, sets, workloads = (parsed.get(key) or () for key in ("axis", "change", "workload"))
    for name in (parsed[key] for key in ("blueprint", "one", "other") if key in parsed):
        if not name.startswith("my-"):
            blueprint = explorer.load(name, axes=axes, sets=sets, workloads=workloads)
            for row in blueprint.combinations().rows:
                assert row.plan is not None, row.skipped
                settle(row.plan, blueprint.workloads)
    targets([name for name in words(parsed.get("hardware") or "") if name != LOCAL], load_registry(), None)


def options(words: Sequence[str]) -> dict[str, Any]:
    """What a command reads of its own words."""
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup):
        name, *words = words
        assert name in command.commands, f"explorer has no command {name!r}"
        command = command.commands[name]
    return command.make_context(command.name, list(words)).params


def test_every_key_of_a_latency_is_defined() -> None:
    text = (ROOT / "docs" / "latency.md").read_text(encoding="utf-8")
    entries = {**untimed(""), **Prediction("", "", "", "").entry()}
    keys = {*entries, *(field.name for field in fields(Timing)), *Measured([], {}).to_dict()}
    assert sorted(key for key in keys if f"`{key}`" not in text) == []


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
