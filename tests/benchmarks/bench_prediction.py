"""Predicted against measured latency on this machine's CPU; run as a script on a quiet machine.

    python tests/benchmarks/bench_prediction.py [--threads 2] [--dtype float32] [--rounds 20] [--blocks] [--raw FILE]

14 blocks at five shapes, and four that are like nothing that is timed. Kernels and tiny blocks, which predictions are
made from, and the blocks themselves are sampled in the same rounds, so that a machine that changes its speed changes it
for all; a sample in which something else used a CPU does not count. A decode is timed cold: copies of the block in
turn, in all four times the last-level cache, if a quarter of the memory has room for them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from explorer.blueprint.workload import Workload
from explorer.latency.device import device_name
from explorer.latency.guard import guard_for
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.memory import free_bytes
from explorer.prediction.bench import Bench
from explorer.prediction.calibration import HeldOut
from explorer.prediction.host import fit_host
from explorer.prediction.sampling import Plan, sample
from explorer.prediction.specimens import Specimen
from explorer.registry.loading import load_registry

FIXTURES = Path(__file__).parents[1] / "fixtures"
REGISTRY = load_registry((str(FIXTURES / "idle.py"), str(FIXTURES / "written_out.py")))

CLASSIC = {"norm": "layernorm", "activation": "gelu", "position": "none", "bias": True}
ATTENTION = {**CLASSIC, "feedforward": "none", "placement": "none"}
FEEDFORWARD = {**CLASSIC, "attention": "none", "placement": "none"}
NORM = {"attention": "none", "feedforward": "idle"}
BLOCKS: Mapping[str, Mapping[str, Any]] = {
    "LayerNorm + add": {**CLASSIC, **NORM},
    "RMSNorm + add": {**CLASSIC, **NORM, "norm": "rmsnorm"},
    "RMSNorm written out + add": {**CLASSIC, **NORM, "norm": "rmsnorm_written_out"},
    "MHA, naive": {**ATTENTION, "attention": "mha_naive"},
    "MHA": {**ATTENTION, "attention": "mha"},
    "GQA, 4 of 12": {**ATTENTION, "attention": {"gqa": {"kv_heads": 4}}},
    "MQA": {**ATTENTION, "attention": {"gqa": {"kv_heads": 1}}},
    "MLP, GELU": FEEDFORWARD,
    "MLP, ReLU": {**FEEDFORWARD, "activation": "relu"},
    "SwiGLU": {**FEEDFORWARD, "activation": "swiglu", "bias": False},
    "block, GPT-2": CLASSIC,
    "block, Llama": {"attention": {"gqa": {"kv_heads": 4}}, "position": "rope", "activation": "swiglu"},
    "block, naive, post": {**CLASSIC, "attention": "mha_naive", "activation": "relu", "placement": "post"},
    "block, parallel": {**CLASSIC, "layout": "parallel"},
}
UNLIKE: Mapping[str, Mapping[str, Any]] = {
    "MHA in a window of 128": {**ATTENTION, "attention": "mha", "window": 128},
    "MHA, soft cap": {**ATTENTION, "attention": {"mha": {"softcap": 30.0}}},
    "GQA with sinks": {**ATTENTION, "attention": {"gqa": {"kv_heads": 4, "sinks": True}}},
    "MLA": {**ATTENTION, "attention": "mla"},
}
"""What attends behind a mask, without a kernel of its own, or in other widths."""
SHAPES = {  # width, batch, tokens, context; target: median error in percent
    "prefill 8 x 256": (768, Workload("prefill", 8, 256, 256), 8),
    "prefill 1 x 128": (768, Workload("prefill", 1, 128, 128), 20),
    "decode 1 x 1 of 128, cold": (768, Workload("decode", 1, 1, 128), 12),
    "decode 1 x 1 of 128, warm": (768, Workload("decode", 1, 1, 128), None),
    "held out: 2 x 512, dim 1152": (1152, Workload("prefill", 2, 512, 512), 8),
    "unlike: 1 x 1024": (768, Workload("prefill", 1, 1024, 1024), None),
}
LEAST_TO_ROTATE = 2**20
"""Bytes of weights below which no cache is too small."""


def specimens(dtype: str) -> dict[str, list[Specimen]]:
    """The blocks at each shape; those that are timed cold with as many copies as the memory takes."""
    found: dict[str, list[Specimen]] = {}
    for shape, (dim, workload, _) in SHAPES.items():
        settled = Workload(**{**vars(workload), "dtype": dtype}).settled()
        found[shape] = [
            Specimen(f"{shape}: {name}", {**written, "dim": dim, "heads": 12}, settled, registry=REGISTRY)
            for name, written in (UNLIKE if shape.startswith("unlike") else BLOCKS).items()
        ]
    cold = "decode 1 x 1 of 128, cold"
    found[cold] = rotated(found[cold])
    return found


def rotated(blocks: Sequence[Specimen]) -> list[Specimen]:
    """The same blocks with copies; all copies of all blocks take a quarter of the free memory at most."""
    cache = last_cache_bytes("cpu") or 64 * 2**20
    large = [block for block in blocks if block.around.weights >= LEAST_TO_ROTATE]
    room = (free_bytes("cpu") or 2**33) / 4 / len(large)
    copies = {id(block): math.ceil(min(4 * cache, room) / block.around.weights) for block in large}
    return [Specimen(b.name, b.written, b.workload, copies.get(id(b), 1), b.registry) for b in blocks]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments.add_argument("--dtype", default="float32")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--blocks", action="store_true", help="print every block")
    arguments.add_argument("--raw", type=Path, help="write the times of everything, milliseconds by key, as JSON")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    shapes = specimens(given.dtype)
    bench = Bench.of(given.dtype, "cpu", tuple(itertools.chain(*shapes.values())))
    with torch.no_grad():
        lanes = dict(bench.lanes())
        plan = Plan(clean=min(12, given.rounds), clean_long=min(8, given.rounds), rounds=given.rounds, seconds=math.inf)
        samples = sample(lanes, guard_for("cpu"), random.Random(0), plan)
    if given.raw is not None:
        given.raw.write_text(json.dumps(dict(samples.ms), indent=1), encoding="utf-8")
    us = {key: ms * 1e3 for key, ms in samples.ms.items()}
    rates = bench.rates(us)
    host = fit_host(list(bench.tiny_passes(us, rates)))
    every = bench.errors(us, rates, host).blocks
    print(f"{device_name('cpu')}, {given.threads} threads, torch {torch.__version__}, {given.dtype}; ", end="")
    print(f"{samples.clean:.0%} of the samples undisturbed\n")
    report(shapes, every, blocks=given.blocks)


def report(shapes: Mapping[str, Sequence[Specimen]], every: Mapping[str, tuple[float, float]], *, blocks: bool) -> None:
    """A table of errors by shape; blocks: of every block too."""
    print("| shape | median error, % | largest | target | ratio of two blocks: median error | largest |")
    print("|---|---|---|---|---|---|")
    for shape, of in shapes.items():
        pairs = {block.key: every[block.key] for block in of}
        found = HeldOut.of(pairs, {block.key: block.workload for block in of})
        factors = [predicted / measured for measured, predicted in pairs.values()]
        ratios = [max(a / b, b / a) for a, b in itertools.combinations(factors, 2)]
        target = SHAPES[shape][2]
        print(f"| {shape} | {100 * found.median:.1f} | {100 * found.largest:.0f} | {target or ''} | ", end="")
        print(f"{statistics.median(ratios):.3f}x | {found.ratio:.2f}x |")
    if blocks:
        print("\n| block | measured, ms | predicted, ms | error, % |\n|---|---|---|---|")
        for block in itertools.chain(*shapes.values()):
            measured, predicted = every[block.key]
            print(f"| {block.name} | {measured:.3f} | {predicted:.3f} | {100 * (predicted / measured - 1):+.1f} |")


if __name__ == "__main__":
    main()
