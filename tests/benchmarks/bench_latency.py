"""Measured latency on this machine: does a repetition say the same, and do parts add up to the whole?

    python tests/benchmarks/bench_latency.py [--effort publish] [--repetitions 5] [--threads 2] [seed|parts ...]

seed: naive against fused multi-head attention at the teaching text's size, several times over. Wanted at `publish`: an
interval of at most 3 % to each side, repetitions within 5 % of each other. Beside it what a plain loop says, one arm
after the other, as the text's own benchmark does it.
parts: blocks of 8 x 256 tokens, each as the sum of its parts and as a whole. Wanted: a median error of at most 5 %.

Needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import explorer

ROOT = Path(__file__).parents[2]
SEED = ROOT / "blueprints" / "seeds" / "mha_naive_vs_fused.yaml"
PARTS = {
    "dim": 768,
    "heads": 12,
    "workloads": [{"phase": "prefill", "batch": 8, "tokens": 256, "dtype": "float32"}],
    "explore": {
        "norm": ["layernorm", "rmsnorm"],
        "attention": ["mha", {"gqa": {"kv_heads": 4}}, "mha_naive"],
        "activation": ["gelu", "swiglu"],
    },
}


def seed(options: argparse.Namespace) -> None:
    ratios = []
    for repetition in range(options.repetitions):
        loop = sequential()
        began = time.perf_counter()
        document = explorer.run(SEED, measure=True, effort=options.effort, device="cpu", audit=0).to_dict()
        naive, fused = (row["costs"][0]["latency"] for row in document["combinations"])
        control = next(iter(document["measurements"][0]["control_ratios"]), None)
        ratio = fused["ratio"]
        print(
            f"{repetition + 1}: naive {naive['median_ms']:.2f} ms, fused {fused['median_ms']:.2f} ms; "
            f"fused / naive {shown(ratio)}, {fused['verdict']}; A/A {shown(control)}; "
            f"clean {fused['clean']:.0%}; one arm after the other {loop:.3f}; {time.perf_counter() - began:.0f} s",
            flush=True,
        )
        if ratio is not None:
            ratios.append(ratio["value"])
    if ratios:
        print(f"repetitions: {min(ratios):.3f} to {max(ratios):.3f}, {max(ratios) / min(ratios) - 1:.1%} apart")


def shown(ratio: dict[str, Any] | None) -> str:
    if ratio is None or ratio["low"] is None:
        return "not known"
    half = (ratio["high"] - ratio["low"]) / 2 / ratio["value"]
    return f"{ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}] (+-{half:.1%})"


@torch.no_grad()
def sequential(calls: int = 20) -> float:
    """The ratio of the means of a plain loop over each, the naive one first."""
    means = []
    for row in explorer.load(SEED).combinations().rows:
        from explorer.assembly.build import build_block

        block, x = build_block(row.plan, device="cpu", dtype="float32").eval(), torch.randn(8, 256, 768)
        for _ in range(3):
            block(x)
        began = time.time()
        for _ in range(calls):
            block(x)
        means.append((time.time() - began) / calls)
    return means[1] / means[0]


def parts(options: argparse.Namespace) -> None:
    document = explorer.run(PARTS, measure="parts", effort=options.effort, device="cpu", audit=0).to_dict()
    for entry in document["measurements"]:
        told = entry["parts"]
        print(json.dumps(told))
        print(f"{told['pieces']} parts, {told['checked']} whole blocks: median error {told['median_error']:.1%}")
        clean = [why is None for process in entry["processes"] for why in process["disturbed"]]
        print(f"clean rounds: {sum(clean)} of {len(clean)}; signed error, median {median(told['errors']):+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["seed", "parts"])
    parser.add_argument("--effort", default="publish")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.what:
        {"seed": seed, "parts": parts}[name](options)


if __name__ == "__main__":
    main()
