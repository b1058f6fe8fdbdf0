"""The script for a machine with a GPU, where nobody can mend it: what is missing costs a section, and no more."""

import importlib.metadata
import json
import subprocess
from pathlib import Path

import pytest

from explorer.latency.failure import CaptureLost
from tests.gpu import comparisons
from tests.gpu.comparisons import LOST_A_CAPTURE, SECTIONS, Machine, _alone, _needs, _surroundings, main

HERE = Machine("cpu", "quick", 16)


def test_the_tests_come_before_all_that_takes_long():
    assert next(iter(SECTIONS)) == "tests"


def test_plugins_are_found_where_nothing_is_installed(tmp_path):
    """By the same entry points as those of the installed package."""
    variables = _surroundings(tmp_path)
    assert Path(variables["EXPLORER_CACHE"]).parent == tmp_path
    (found,) = importlib.metadata.distributions(name="architecture-explorer", path=[str(tmp_path / "path")])
    installed = importlib.metadata.distribution("architecture-explorer")
    plugins = installed.entry_points.select(group="explorer")
    assert {(one.name, one.value) for one in found.entry_points} == {(one.name, one.value) for one in plugins}
    assert found.version == installed.version


def fails(error):
    def section(at):
        raise error

    return section


@pytest.mark.parametrize(
    ("section", "code", "told"),
    [
        (lambda at: {}, 0, ("result", {})),
        (lambda at: _needs("no_such_module"), 0, ("skipped", "skipped: no_such_module is not installed")),
        (fails(ValueError("odd")), 1, ("error", "ValueError: odd")),
        (fails(CaptureLost("no graph")), LOST_A_CAPTURE, ("error", "CaptureLost: no graph")),
    ],
)
def test_how_a_section_ends(tmp_path, monkeypatch, section, code, told):
    monkeypatch.setitem(comparisons.SECTIONS, "mha", section)
    assert _alone("mha", HERE, tmp_path / "mha.json") == code
    key, value = told
    assert json.loads((tmp_path / "mha.json").read_text())[key] == value


@pytest.mark.parametrize(("codes", "again", "failed"), [([0], False, 0), ([3, 0], True, 0), ([3, 1], True, 1)])
def test_a_section_that_lost_the_device_to_a_graph_begins_again_without(tmp_path, monkeypatch, codes, again, failed):
    left, commands = list(codes), []

    def run(command, **_):
        commands.append(list(command))
        return subprocess.CompletedProcess(command, left.pop(0))

    monkeypatch.setattr(comparisons.subprocess, "run", run)
    assert main(["--out", str(tmp_path), "--sections", "mha"]) == failed
    assert ["--no-graphs" in command for command in commands] == [False, True][: 1 + again]
