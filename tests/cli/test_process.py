"""What only a process of its own shows: imports, pipes, signals, encodings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPLORER = [sys.executable, "-m", "explorer"]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EXPLORER, *words], capture_output=True, encoding="utf-8", env={**os.environ, **environment}, timeout=120
    )


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["run", "--help"], ["plugins", "--help"]])
def test_help_and_version_import_nothing_slow(words: list[str]) -> None:
    code = (
        "import runpy, sys\n"
        "try: runpy.run_module('explorer', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "slow = {'torch', 'polars', 'rich', 'yaml', 'pluggy', 'altair'} & set(sys.modules)\n"
        "assert not slow, slow"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("explorer ", "Usage: explorer"))


def test_a_closed_pipe_is_quiet(toy: Path) -> None:
    command = [*EXPLORER, "blueprint", "show", str(toy)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 141


def test_columns_and_encoding_come_from_the_environment(study: Path) -> None:
    wide = run("run", str(study), COLUMNS="200")
    narrow = run("run", str(study), COLUMNS="60", PYTHONIOENCODING="ascii")
    assert (wide.returncode, narrow.returncode) == (0, 0), narrow.stderr
    assert max(map(len, wide.stdout.splitlines())) > 100
    assert max(map(len, narrow.stdout.splitlines())) <= 60
    assert "?" in narrow.stdout, "signs that ascii lacks are replaced"
    assert "\x1b" not in wide.stdout, "no colour outside a terminal"


def test_documents_are_utf8_whatever_the_terminal_is(toy: Path) -> None:
    assert "·" in run("run", str(toy), "--format", "md", PYTHONIOENCODING="ascii").stdout


def test_errors_of_the_blueprint_come_without_a_traceback(tmp_path: Path) -> None:
    done = run("run", str(tmp_path / "missing.yaml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "missing.yaml" in done.stderr
    assert "Traceback" not in done.stderr
