"""Counting one combination against torch's own FlopCounterMode over the same whole model; run as a script.

    python tests/benchmarks/bench_counting.py

FlopCounterMode runs every layer; the explorer looks at each distinct layer once, and counts more (parameters, active
parameters, exact products, cache, the blocks). The peer's model is built before the clock starts, ours inside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

import explorer
from explorer.assembly.build import build_model
from explorer.cost.counting import count

MODELS = ("gpt2-small", "llama-3-8b", "gemma-2-9b")


def median_ms(call: Callable[[], object], rounds: int = 7) -> float:
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    print(f"{'model':<14}{'explorer ms':>12}{'FlopCounterMode ms':>20}{'ratio':>8}")
    for name in MODELS:
        blueprint = explorer.load(name)
        plan = blueprint.plan()
        model = build_model(plan, device="meta", dtype=torch.bfloat16).eval()
        tokens = 1024 if name.startswith("gpt2") else 2048
        ids = torch.zeros(1, tokens, dtype=torch.int64, device="meta")

        def peer(model: torch.nn.Module = model, ids: torch.Tensor = ids) -> None:
            with torch.no_grad(), FlopCounterMode(display=False):
                model(ids)

        ours = median_ms(lambda plan=plan, blueprint=blueprint: count(plan, blueprint.workloads))
        theirs = median_ms(peer)
        print(f"{name:<14}{ours:>12.0f}{theirs:>20.0f}{ours / theirs:>8.2f}")


if __name__ == "__main__":
    main()
