"""Wrong input, a line each: exit 2, one message that says where, what, and what would be valid; no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

HEAD = "dim: 64\nheads: 4\n"

FILES = {  # bytes of the file, what the message must say
    "empty": (b"", ("is empty",)),
    "only comments": (b"# nothing here\n", ("is empty",)),
    "binary": (b"\x7fELF\x00\x01\x02\x00" * 30, ("no text file",)),
    "a list": (b"- dim: 64\n", ("mapping",)),
    "unknown plugin": (HEAD.encode() + b"norm: rmsnrom\n", ("bad.yaml:3:7", "rmsnrom", "did you mean 'rmsnorm'?")),
    "unknown parameter": (HEAD.encode() + b"norm: {rmsnorm: {epsilon: 1e-6}}\n", ("bad.yaml:3:18", "epsilon", "eps")),
    "unknown field": (HEAD.encode() + b"atention: mha\n", ("bad.yaml:3:1", "did you mean 'attention'?")),
    "unknown field of a stack": (
        b"encoder: {leyers: 2}\ndecoder: {}\n" + HEAD.encode(),
        ("leyers", "did you mean 'layers'?"),
    ),
    "unknown field of a block": (HEAD.encode() + b"blocks: {a: {windw: 3}}\n", ("windw", "did you mean 'window'?")),
    "unknown workload key": (HEAD.encode() + b"workloads: [{token: 8}]\n", ("token", "did you mean 'tokens'?")),
    "unknown phase": (HEAD.encode() + b"workloads: [{phase: decoding}]\n", ("phase", "decoding", "decode")),
    "unknown dtype": (HEAD.encode() + b"workloads: [{dtype: bf16}]\n", ("dtype", "bf16", "bfloat16")),
    "heads do not divide": (b"dim: 100\nheads: 12\n", ("bad.yaml:2:", "12", "100", "8.33", "10")),
    "kv_heads do not divide": (
        HEAD.encode() + b"attention: {gqa: {kv_heads: 3}}\n",
        ("bad.yaml:3:", "kv_heads 3", "heads 4"),
    ),
    "zero": (b"dim: 0\nheads: 4\n", ("bad.yaml:1:", "dim", ">= 1")),
    "negative": (b"dim: 64\nheads: -4\n", ("bad.yaml:2:", "heads", ">= 1")),
    "huge": (b"dim: 99999999999999999999\nheads: 4\n", ("bad.yaml:1:", "dim", "<= 1")),
    "huge layers": (HEAD.encode() + b"layers: 1000000000\n", ("bad.yaml:3:", "layers", "100,000")),
    "a boolean for a number": (b"dim: true\nheads: 4\n", ("bad.yaml:1:", "dim", "true")),
    "yes": (b"dim: yes\nheads: 4\n", ("bad.yaml:1:", "yes", "true")),
    "leading zeros": (b"dim: 0512\nheads: 4\n", ("bad.yaml:1:", "0512", "512")),
    "base 60": (b"dim: 1:30\nheads: 4\n", ("bad.yaml:1:", "1:30")),
    "half a width": (HEAD.encode() + b"feedforward: {dense: {hidden: 1365.33}}\n", ("hidden", "1365.33")),
    "missing dim": (b"heads: 4\n", ("dim",)),
    "missing parameter": (HEAD.encode() + b"attention: gqa\n", ("bad.yaml:3:", "kv_heads")),
}


@pytest.mark.parametrize("case", FILES)
def test_wrong_file(case: str, explorer, tmp_path: Path) -> None:
    content, parts = FILES[case]
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    told(explorer("run", path, "--out", tmp_path / "out"), *parts)
    assert not (tmp_path / "out").exists()


PATHS = {
    "missing": ("toi.yaml", ("toi.yaml", "toy.yaml")),
    "directory": (".", ("directory",)),
}


@pytest.mark.parametrize("case", PATHS)
def test_wrong_path(case: str, explorer, toy: Path) -> None:
    name, parts = PATHS[case]
    told(explorer("run", toy.parent / name), *parts)


OPTIONS = {
    "device": (["--measure", "--device", "gpu9"], ("gpu9", "cpu")),
    "device without measuring": (["--device", "gpu9"], ("gpu9", "cpu")),
    "phase": (["--workload", "phase=decoding"], ("decoding", "decode")),
    "dtype": (["--workload", "dtype=bf16"], ("bf16", "bfloat16")),
    "decode without context": (["--workload", "phase=decode"], ("context",)),
    "no value": (["--set", "dim"], ("PATH=VALUE",)),
    "unreached path": (["--set", "attention.kv_heads=2"], ("attention.kv_heads", "reaches nothing", "mha")),
    "what an option sets": (
        ["--set", "attention={gqa: {kv_heads: 2}}", "--set", "attention.kv_heads=3"],
        ("--set attention.kv_heads=3: attention 'gqa:kv_heads=3': heads 4 must divide by kv_heads 3",),
    ),
    "limit": (["--limit", "1", "--axis", "norm=rmsnorm,layernorm"], ("2", "--limit")),
    "resting everywhere": (["--axis", "attention.kv_heads=1,2"], ("kv_heads", "mha")),
    "plugin": (["-p", "no_such_module"], ("no_such_module",)),
    "the same path twice": (["--axis", "norm=rmsnorm", "--axis", "norm=layernorm,rmsnorm,rmsnorm"], ("twice",)),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_option(case: str, explorer, toy: Path) -> None:
    options, parts = OPTIONS[case]
    told(explorer("run", toy, *options), *parts)


BROKEN_PLUGINS = {
    "import error": "import nothing_of_this_name\n",
    "syntax error": "def broken(:\n",
    "exit": "raise SystemExit(3)\n",
    "hook with an argument": "from explorer import hookimpl\n@hookimpl\ndef register_norms(path): return {}\n",
    "hook that raises": "from explorer import hookimpl\n@hookimpl\ndef register_norms(): raise KeyError('x')\n",
}


@pytest.mark.parametrize("case", BROKEN_PLUGINS)
def test_broken_plugin(case: str, explorer, toy: Path) -> None:
    module = toy.with_name("broken_plugin.py")
    module.write_text(BROKEN_PLUGINS[case], encoding="utf-8")
    told(explorer("run", toy, "-p", module), "broken_plugin.py")


def test_out_of_memory_while_measuring_is_the_rows_error(explorer, toy: Path, tmp_path: Path) -> None:
    """One combination that cannot be held, beside one that can: exit 1, the counts of both, the reason of one."""
    plugin = tmp_path / "greedy.py"
    plugin.write_text(GREEDY, encoding="utf-8")
    result = explorer("run", toy, "-p", plugin, "--axis", "norm=rmsnorm,greedy", "--measure", "--effort", "quick",
                      "--device", "cpu", "--format", "csv")  # fmt: skip
    assert result.exit_code == 1
    lines = [line.split(",") for line in result.stdout.splitlines()]
    errors = {line[0]: line[lines[0].index("error")] for line in lines[1:]}
    assert len(errors) == 2
    assert sum("out of memory" in error for error in errors.values()) == 1
    assert all(line[lines[0].index("matmul_flops")] for line in lines[1:])


GREEDY = """\
import torch
from torch import Tensor, nn
from explorer import hookimpl


class Greedy(nn.Module):
    "x, through a copy that no machine holds."

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta:
            torch.empty(2**60, dtype=torch.uint8)
        return x


@hookimpl
def register_norms():
    return {"greedy": Greedy}
"""


def told(result, *parts: str) -> None:
    """Exit 2 with a message that holds all parts, nothing on stdout, no traceback."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    missing = [part for part in parts if part not in result.stderr]
    assert not missing, f"{missing} not in:\n{result.stderr}"
