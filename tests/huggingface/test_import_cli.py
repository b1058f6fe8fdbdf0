"""`explorer blueprint import`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import explorer
from explorer.cli.app import app

CONFIG = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}
TEXT = """\
dim: 32
heads: 4
norm: rmsnorm
position: rope
attention: mha
feedforward: {dense: {hidden: 11008}}
activation: swiglu
layers: 2
vocab: 50
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return path


def call(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin, prog_name="explorer")


def test_a_file_and_its_folder_are_printed(config):
    for source in (config, config.parent):
        result = call("blueprint", "import", source)
        assert result.exit_code == 0, result.stderr
        assert result.stdout == f"# {config}, model_type llama\n{TEXT}"


def test_standard_input_is_printed_and_names_its_model():
    result = call("blueprint", "import", "-", stdin=json.dumps({**CONFIG, "_name_or_path": "someone/llama-tiny"}))
    assert result.stdout == f"# someone/llama-tiny config.json, model_type llama\n{TEXT}"


def test_what_is_printed_runs(config):
    text = call("blueprint", "import", config).stdout
    assert call("blueprint", "check", "-", stdin=text).exit_code == 0
    ran = call("run", "-", "--workload", "tokens=4", "--format", "json", stdin=text)
    assert ran.exit_code == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["combinations"]
    assert row["params"]["model"] == 2 * 50 * 32 + 2 * (4 * 32 * 32 + 3 * 32 * 11008 + 2 * 32) + 32


def test_out_writes_a_file(config, tmp_path):
    out = tmp_path / "tiny.yaml"
    result = call("blueprint", "import", config, "--out", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert out.read_text(encoding="utf-8") == f"# {config}, model_type llama\n{TEXT}"
    assert explorer.load(out).name == "tiny"
    refused = call("blueprint", "import", config, "--out", tmp_path / "nowhere" / "tiny.yaml")
    assert refused.exit_code == 2
    assert "cannot write there" in refused.stderr


def test_problems_are_printed_with_their_places(config):
    config.write_text('{"model_type": "llama",\n "odd": 1}', encoding="utf-8")
    result = call("blueprint", "import", config)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{config}:2:2: odd: 1 is not understood: it may change the architecture\n"


def test_an_import_loads_nothing_heavy(config):
    script = f"""
import runpy, sys
sys.argv = ["explorer", "blueprint", "import", {str(config)!r}]
try:
    runpy.run_module("explorer", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
loaded = {{"torch", "transformers", "polars"}} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
