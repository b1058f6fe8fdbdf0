"""A command line in this process, and a blueprint small enough to count in a moment."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from explorer.cli.app import app

TOY = """\
dim: 16
heads: 4
layers: 2
feedforward: {dense: {hidden: 32}}
workloads: [{phase: prefill, tokens: 8, dtype: float32}]
"""
STUDY = TOY + "explore: {norm: [rmsnorm, layernorm], attention: [mha, {gqa: {kv_heads: 2}}]}\n"

Explorer = Callable[..., Result]


@pytest.fixture
def explorer() -> Explorer:
    """Call the command line; `Result` holds exit_code, stdout and stderr."""

    def call(*words: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words], input=stdin, prog_name="explorer")

    return call


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """One small model."""
    path = tmp_path / "toy.yaml"
    path.write_text(TOY, encoding="utf-8")
    return path


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two axes over the small model."""
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path
