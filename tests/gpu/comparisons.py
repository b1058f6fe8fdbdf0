"""What a machine with a GPU is asked, within eight minutes: the GPU tests, then comparisons at quick effort.

    python -m tests.gpu.comparisons --out DIR [--sections tests,mha,...] [--device cuda] [--effort quick]

Each section runs in a process of its own, so that no other one holds the device while it measures; it writes
DIR/NAME.json when it is done, and is left out with a reason once the time is over. Run it in the repository itself;
the package need not be installed. It needs torch, numpy, scipy, pyyaml, pluggy, pydantic, typer and rich. Two sections
need more, and are skipped with a reason without it: `tests` pytest, `transformers` transformers. Compiling needs a C
compiler, and nvidia-ml-py lets the guard see the device. All files go to DIR, a calibration too. With `--device cpu` it
runs on small sizes, to try the script itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import explorer
from explorer.latency.device import environment
from explorer.latency.failure import CaptureLost

ROOT = Path(__file__).parents[2]
SECONDS = 480.0
TEST_SECONDS = 200.0
LOST_A_CAPTURE = 3
"""How a section ends whose process lost its device in a capture: without graphs it may go on in another one."""
MOST_DIFFERENCE = 1e-4
"""Of the logits of a layer here and in transformers, both in float32."""
# Without what the project's own options need: plugins of pytest, and hypothesis in the conftest of all tests.
PYTEST = [
    *(sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "--import-mode=importlib", "--strict-markers"),
    *("-p", "no:cacheprovider", "--confcutdir=tests/gpu", "tests/gpu"),
]


class Skipped(Exception):
    """A section that needs what is not there."""


@dataclass(frozen=True)
class Machine:
    """Where it runs: the device, how long each comparison may take, by what sizes are divided, whether with graphs."""

    device: str
    effort: str
    smaller: int = 1
    graphs: bool = True

    def study(self, document: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """A blueprint measured on the device."""
        return explorer.run(
            document, measure=True, effort=self.effort, device=self.device, audit=0, **options
        ).to_dict()


def tests(at: Machine) -> dict[str, Any]:
    """The tests that need a GPU."""
    _needs("pytest")
    done = subprocess.run(PYTEST, cwd=ROOT, capture_output=True, text=True, timeout=TEST_SECONDS, check=False)
    output = (done.stdout + done.stderr)[-8000:]
    if done.returncode:
        raise AssertionError(output)
    return {"output": output}


def mha(at: Machine) -> dict[str, Any]:
    """Naive against fused multi-head attention at the teaching text's size, (8, 256, 768, 12)."""
    return at.study("blueprints/seeds/mha_naive_vs_fused.yaml" if at.smaller == 1 else _SMALL_MHA)


def norms(at: Machine) -> dict[str, Any]:
    """LayerNorm against RMSNorm alone, and in a block of GPT-2's size, eager and compiled."""
    norm_only = {"dim": 4096 // at.smaller, "heads": 1, "attention": "none", "feedforward": {"dense": {"hidden": 16}}}
    block = {"dim": 1024 // at.smaller, "heads": 16}
    workload = {"phase": "prefill", "batch": 8, "tokens": 1024 // at.smaller, "dtype": "bfloat16"}
    axes = {"norm": ["layernorm", "rmsnorm"]}
    studies = {"alone": norm_only, "block": block}
    return {
        name: at.study({**study, "workloads": [workload], "explore": axes}, impls=("eager", "compile"))
        for name, study in studies.items()
    }


def decode(at: Machine) -> dict[str, Any]:
    """MHA, GQA, MQA and MLA, one token behind 128, 2,048 and 8,192."""
    contexts = [length // at.smaller for length in (128, 2048, 8192)]
    document = {
        "dim": 4096 // at.smaller,
        "heads": 32 // min(at.smaller, 8),
        "feedforward": "none",
        "workloads": [{"phase": "decode", "batch": 8, "context": contexts, "dtype": "bfloat16"}],
        "explore": {"attention": ["mha", {"gqa": {"kv_heads": 4}}, {"gqa": {"kv_heads": 1}}, "mla"]},
    }
    return at.study(document)


def against_transformers(at: Machine) -> dict[str, Any]:
    """A layer of Llama 3 8B here and in transformers: with equal weights the same results, timed in the same rounds."""
    _needs("transformers")
    from explorer.latency.measure import Candidate, measure
    from explorer.latency.regimes import regimes_for
    from explorer.study.measured import Measured

    error = _difference(at)
    if not error < MOST_DIFFERENCE:
        raise AssertionError(f"not compared: logits in float32 differ by {error:.1e} (2-norm, as a share)")
    process = measure(
        [
            Candidate("ours", partial(_ours, at)),
            Candidate("ours~", partial(_ours, at)),
            Candidate("theirs", partial(_theirs, at)),
        ],
        device=at.device,
        effort=at.effort,
        regimes=[regime for regime in regimes_for(at.device) if at.graphs or regime.name != "device"],
        baselines={"ours": None, "theirs": "ours"},
    )
    measured = Measured([process], {"ours": None, "theirs": "ours"})
    entries = {key: measured.entries(key) for key in ("ours", "theirs")}
    return {"difference": error, "entries": entries, "raw": measured.to_dict()}


def predicted(at: Machine) -> dict[str, Any]:
    """Twenty combinations measured and predicted, in time and in memory, after a calibration of this device."""
    calibrating = [sys.executable, "-m", "explorer", "calibrate", "--device", at.device, "--dtype", "bfloat16"]
    calibrated = subprocess.run(calibrating, capture_output=True, text=True, timeout=180, check=True)
    document = {
        "dim": 2048 // at.smaller,
        "heads": 16,
        "workloads": [
            {"phase": "prefill", "batch": 4, "tokens": 1024 // at.smaller, "dtype": "bfloat16"},
            {"phase": "train", "batch": 2, "tokens": 1024 // at.smaller, "dtype": "bfloat16"},
        ],
        "explore": {
            "norm": ["layernorm", "rmsnorm"],
            "activation": ["gelu", "swiglu"],
            "attention": ["mha", {"gqa": {"kv_heads": 4}}, {"gqa": {"kv_heads": 1}}, "mla", "mha_naive"],
        },
    }
    return {"calibration": calibrated.stdout, "study": at.study(document, hardware=("local",))}


SECTIONS: Mapping[str, Callable[[Machine], dict[str, Any]]] = {
    "tests": tests,
    "mha": mha,
    "norms": norms,
    "decode": decode,
    "transformers": against_transformers,
    "predicted": predicted,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the sections one after the other; 1 where one failed or had no time."""
    options = _options(arguments)
    at = Machine(options.device, options.effort, 1 if options.device.startswith("cuda") else 16, options.graphs)
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.sections.split(",")
    if options.alone:
        return _alone(names[0], at, options.out / f"{names[0]}.json")
    surroundings = _surroundings(options.out)
    began, failed = time.monotonic(), False
    for name in names:
        left = options.seconds - (time.monotonic() - began)
        if left <= 0:
            print(f"{name}: left out, {options.seconds:.0f} s were over", flush=True)
        failed |= left <= 0 or not _ran(name, options, surroundings, left)
    return int(failed)


def _ran(name: str, options: argparse.Namespace, surroundings: Mapping[str, str], seconds: float) -> bool:
    """Whether a section was done within the time that is left; one that lost the device to a graph begins again."""
    command = [sys.executable, "-m", "tests.gpu.comparisons", "--alone", "--sections", name]
    command += ["--out", str(options.out), "--device", options.device, "--effort", options.effort]
    began = time.monotonic()
    try:
        code = subprocess.run(command, cwd=ROOT, env=surroundings, timeout=seconds, check=False).returncode
        if code == LOST_A_CAPTURE:
            seconds -= time.monotonic() - began
            command.append("--no-graphs")
            code = subprocess.run(command, cwd=ROOT, env=surroundings, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{name}: stopped after {time.monotonic() - began:.0f} s", flush=True)
        return False
    return code == 0


def _surroundings(out: Path) -> dict[str, str]:
    """The environment of the sections: all that is written goes to the folder, and plugins need no installation.

    They are found by the entry points of pyproject.toml, as a distribution beside the checkout.
    """
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    _, _, points = project.partition("[project.entry-points.explorer]")
    points = points.partition("\n[")[0].replace('"', "")
    about = out / "path" / f"architecture_explorer-{explorer.__version__}.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(f"Name: architecture-explorer\nVersion: {explorer.__version__}\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(f"[explorer]{points}", encoding="utf-8")
    path = [str(ROOT), str(ROOT / "plugins"), str(about.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "EXPLORER_CACHE": str(out / "cache")}


def _alone(name: str, at: Machine, file: Path) -> int:
    """One section in this process."""
    began = time.monotonic()
    code = 0
    try:
        found: dict[str, Any] = {"result": SECTIONS[name](at)}
    except Skipped as reason:
        found = {"skipped": str(reason)}
    except Exception as error:  # the other sections may still say something
        found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        code = LOST_A_CAPTURE if isinstance(error, CaptureLost) else 1
    seconds = time.monotonic() - began
    told = {"section": name, "seconds": seconds, "environment": environment(at.device), "graphs": at.graphs, **found}
    file.write_text(json.dumps(told, indent=1), encoding="utf-8")
    print(f"{name}: {found.get('error') or found.get('skipped') or 'done'}, {seconds:.0f} s", flush=True)
    return code


def _needs(module: str) -> None:
    if find_spec(module) is None:
        raise Skipped(f"skipped: {module} is not installed")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sections", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no section begins after so many")
    parser.add_argument("--no-graphs", dest="graphs", action="store_false", help="leave the regime `device` out")
    parser.add_argument("--alone", action="store_true", help="run the section in this process")
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    unknown = [name for name in options.sections.split(",") if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return options


_SMALL_MHA = {
    "dim": 64,
    "heads": 4,
    "workloads": [{"phase": "prefill", "batch": 2, "tokens": 32, "dtype": "float32"}],
    "explore": {"attention": ["mha_naive", "mha"]},
}
_LLAMA = {"dim": 4096, "heads": 32, "kv_heads": 8, "hidden": 14336}
_VOCAB = 64


def _ours(at: Machine, dtype: str = "bfloat16") -> Any:
    from explorer.blueprint.workload import Workload
    from explorer.latency.runner import Feed, ready

    size = {name: value // min(at.smaller, 8) for name, value in _LLAMA.items()}
    document = {
        "dim": size["dim"],
        "heads": size["heads"],
        "layers": 1,
        "vocab": _VOCAB,
        "norm": {"rmsnorm": {"eps": 1e-6}},
        "attention": {"gqa": {"kv_heads": size["kv_heads"]}},
        "feedforward": {"dense": {"hidden": size["hidden"]}},
        "activation": "swiglu",
    }

    def make(device: str, dtype: Any) -> Any:
        model = explorer.build(document, device=device, dtype=dtype)
        explorer.load_weights(model, {name: value.to(dtype) for name, value in _reference(at).state_dict().items()})
        return model

    workload = Workload("prefill", batch=4, tokens=1024 // at.smaller, dtype=dtype).settled()
    return ready(make, workload, Feed(dim=size["dim"], vocab=_VOCAB), device=at.device)


def _theirs(at: Machine) -> Any:
    import torch

    from explorer.latency.runner import Bare

    model = _reference(at).to(at.device, torch.bfloat16).eval()
    ids = torch.randint(_VOCAB, (4, 1024 // at.smaller), device=at.device)
    return Bare(torch.no_grad()(lambda: model(ids, use_cache=False).logits))


def _difference(at: Machine) -> float:
    """How far the logits of the two are apart, as a share (2-norms): in float32, where rounding hides nothing."""
    import torch

    step = _ours(at, "float32")
    with torch.no_grad():
        ours = step.result(step.module, *step.inputs).double()
        theirs = _reference(at).to(at.device).eval()(step.inputs[0], use_cache=False).logits.double()
    return float((ours - theirs).norm() / theirs.norm())


def _reference(at: Machine) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {name: value // min(at.smaller, 8) for name, value in _LLAMA.items()}
    config = LlamaConfig(
        vocab_size=_VOCAB,
        hidden_size=size["dim"],
        intermediate_size=size["hidden"],
        num_hidden_layers=1,
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config)


if __name__ == "__main__":
    sys.exit(main())
