"""A plugin package of someone else's, installed by pip into an environment of its own beside the explorer.

The environments see everything that the running one holds, so nothing is fetched from a network.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

LAB = Path(__file__).parents[1] / "fixtures" / "lab_norms"
BROKEN = {
    "pyproject.toml": """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "broken-lab"
version = "0.3"
[project.entry-points.explorer]
broken_lab = "broken_lab"
[tool.setuptools]
py-modules = ["broken_lab"]
""",
    "broken_lab.py": "import lost_dependency\n",
}

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and where its user stands."""

    python: Path
    home: Path

    def start(self, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "PIP_"))}
        env = {**kept, "PIP_CONFIG_FILE": os.devnull, "PYTHONWARNINGS": "ignore", "NO_COLOR": "1", "COLUMNS": "200"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([str(self.python), *arguments], cwd=cwd or self.home, env=env, **pipes)

    def explorer(self, *arguments: str, stdin: str = "", code: int = 0) -> tuple[str, str]:
        """Standard output and error of a command that ends with this exit code."""
        started = self.start("-m", "explorer", *arguments)
        out, err = started.communicate(stdin, timeout=120)
        assert started.returncode == code, err
        assert "Traceback" not in err
        return out, err

    def install(self, *arguments: str) -> None:
        options = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--quiet"]
        started = self.start("-m", "pip", "install", *options, *arguments)
        out, err = started.communicate(timeout=120)
        assert started.returncode == 0, out + err


def make_environment(folder: Path) -> Environment:
    # Only its metadata: even looking for the module switches off setuptools' hook for distutils, which inductor needs.
    if not any(dist.name == "pip" for dist in importlib.metadata.distributions(name="pip")):
        pytest.skip("plugins are installed by pip, which is not here")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    environment = Environment(python, folder)
    site, _ = environment.start("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").communicate(timeout=60)
    folders = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in folders)
    (Path(site.strip()) / "surroundings.pth").write_text(lines)
    return environment


def copy_of_lab(folder: Path) -> Path:
    """Building writes beside the sources."""
    return Path(shutil.copytree(LAB, folder / "lab_norms", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")))


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Environment:
    """lab-norms, and a broken package beside it."""
    folder = tmp_path_factory.mktemp("installed")
    broken = folder / "broken"
    broken.mkdir()
    for name, text in BROKEN.items():
        (broken / name).write_text(text)
    environment = make_environment(folder)
    environment.install(str(copy_of_lab(folder)), str(broken))
    return environment


@pytest.fixture(scope="module")
def editable(tmp_path_factory) -> Environment:
    """lab-norms installed as the folder that its author works in."""
    folder = tmp_path_factory.mktemp("editable")
    environment = make_environment(folder)
    environment.install("--editable", str(copy_of_lab(folder)))
    return environment


def rows_with(text: str, words: Sequence[str]) -> list[str]:
    return [line for line in text.splitlines() if all(word in line.split() for word in words)]


COMPONENTS = [("norm", "prmsnorm"), ("activation", "mishglu"), ("residual", "tanh_gate")]


def test_plugins_list_shows_it_and_the_broken_one_beside_it(installed):
    out, _ = installed.explorer("plugins", "list")
    for kind, name in COMPONENTS:
        assert len(rows_with(out, [kind, name, "lab_norms"])) == 1
    assert rows_with(out, ["norm", "rmsnorm", "explorer_norms"])
    assert len(rows_with(out, ["broken_lab", "broken-lab", "0.3"])) == 1
    assert "No module named 'lost_dependency'" in " ".join(out.split())


def test_run_compares_its_components_with_the_built_in_ones(installed):
    out, err = installed.explorer("run", "-", "--format", "json", stdin=(LAB / "example.yaml").read_text())
    assert "plugin package 'broken_lab' of broken-lab 0.3 is broken" in err
    params = {tuple(row["choices"].values()): row["params"]["block"] for row in json.loads(out)["combinations"]}
    assert len(params) == 12
    before = params["rmsnorm", "swiglu", "add"]
    assert params["prmsnorm:part=0.0625", "mishglu", "add"] == before
    assert params["prmsnorm", "mishglu", "tanh_gate"] == before + 2  # one gate for each of two sublayers


def test_its_own_tests_pass(installed):
    started = installed.start("-m", "pytest", "-q", "-p", "no:cacheprovider", "lab_norms/tests")
    out, _ = started.communicate(timeout=120)
    assert started.returncode == 0, out


def test_an_editable_install_is_found_once_from_every_folder(editable):
    project = editable.home / "lab_norms"
    folders = (project, project / "src", Path(project.anchor))
    started = [editable.start("-m", "explorer", "plugins", "list", cwd=folder) for folder in folders]
    outs = [process.communicate(timeout=120)[0] for process in started]
    for out in outs:
        assert len(rows_with(out, ["norm", "prmsnorm", "lab_norms"])) == 1
        assert len(rows_with(out, ["lab_norms", "lab-norms", "0.1.0", str(project / "src" / "lab_norms")])) == 1
        assert "warning" not in out


def test_what_is_renamed_must_be_reinstalled(editable):
    table = editable.home / "lab_norms" / "pyproject.toml"
    table.write_text(table.read_text().replace('lab_norms = "lab_norms"', 'lab_norms_2 = "lab_norms"'))
    _, err = editable.explorer("run", "-", stdin="dim: 64\nheads: 4\nnorm: lab_norms_2:prmsnorm\n", code=2)
    assert "there is no plugin package 'lab_norms_2'" in err
    assert "did you mean 'lab_norms'?" in err
    assert "after a change of its entry points a plugin must be reinstalled" in err
