"""Verdicts on this machine where the truth is known: a block against itself, and against one made 10 % slower.

    python tests/benchmarks/bench_verdicts.py [--runs 40] [--effort quick] [--threads 2] [--blind] [--only CASE ...]

Each run measures ten passes of a block, their clone, and ten (cases `equal`, `competed`) or eleven (`slower`) passes of
it, in the same interleaved rounds of this process. In `competed` another process keeps one CPU busy, on and off for 0.5
to 4 s. Wanted of 40 runs at quick effort: `faster` or `slower` at most twice between equal ones, `slower` at least 38
times for the slower one. The second needs a machine with nothing else to do: disturbed rounds do not count. With
--blind nothing watches for them, and they do.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

import explorer
from explorer.latency.arms import Candidate
from explorer.latency.comparison import Comparison, compare
from explorer.latency.guard import Guard, NoGuard
from explorer.latency.measure import measure
from explorer.latency.raw import Lane
from explorer.latency.runner import Bare
from explorer.latency.verdict import Verdict

DIM, TOKENS, PASSES = 256, 128, 10
BASE, CLONE, OTHER = (Lane(key, "eager", "host") for key in ("base", "base~", "other"))
WANTED = {"equal": "faster or slower at most twice", "competed": "the same", "slower": "slower in all but two"}


def passes(count: int) -> Callable[[], Bare]:
    """One call is `count` passes of the same block."""

    def build() -> Bare:
        blueprint = explorer.load({"dim": DIM, "heads": 4, "feedforward": {"dense": {"hidden": 4 * DIM}}})
        block = explorer.build(blueprint, scope="block", device="cpu").eval()
        x = torch.randn(1, TOKENS, DIM, generator=torch.Generator().manual_seed(0))

        @torch.no_grad()
        def call() -> None:
            for _ in range(count):
                block(x)

        return Bare(call)

    return build


def compared(others: int, effort: str, seed: int, guard: Guard | None) -> Comparison:
    candidates = [
        Candidate(BASE.candidate, passes(PASSES)),
        Candidate(CLONE.candidate, passes(PASSES)),
        Candidate(OTHER.candidate, passes(others)),
    ]
    process = measure(
        candidates,
        device="cpu",
        effort=effort,
        seed=seed,
        guard=guard,
        baselines=dict.fromkeys((CLONE.candidate, OTHER.candidate), BASE.candidate),
    )
    return compare([process], BASE, [OTHER], CLONE)


@contextmanager
def competitor(there: bool) -> Iterator[None]:
    """A process of its own that works and sleeps in turns of 0.5 to 4 s."""
    if not there:
        yield
        return
    process = subprocess.Popen([sys.executable, __file__, "--compete", str(os.getpid())])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compete(parent: int) -> None:
    """Busy and idle in turns for as long as the process that began this one lives."""
    rng = random.Random(0)
    while os.getppid() == parent:
        until = time.monotonic() + rng.uniform(0.5, 4)
        while time.monotonic() < until:
            pass
        time.sleep(rng.uniform(0.5, 4))


def report(name: str, found: list[Verdict], seconds: float) -> None:
    words = Counter(verdict.word for verdict in found)
    ratios = [verdict.ratio for verdict in found if verdict.ratio]
    shown = ", ".join(f"{word} {count}" for word, count in words.most_common())
    values = sorted(ratio.value for ratio in ratios)
    spans = [100 * (ratio.high / ratio.low - 1) / 2 for ratio in ratios if ratio.low and ratio.high]
    span = f"{values[0]:.3f} / {median(values):.3f} / {values[-1]:.3f}" if values else "none"
    width = f"{median(spans):.1f} %" if spans else "none"
    print(f"| {name} | {shown} | {span} | {width} | {seconds:.0f} | {WANTED[name]} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="+", choices=WANTED, default=list(WANTED))
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--compete", type=int, metavar="PID", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compete is not None:
        compete(options.compete)
        return
    torch.set_num_threads(options.threads)
    guard = NoGuard("--blind") if options.blind else None
    print(f"{options.runs} runs at {options.effort} effort, {options.threads} threads, torch {torch.__version__}\n")
    print("| case | verdicts | ratio: least / median / largest | half an interval, median | s | wanted |")
    print("|---|---|---|---|---|---|")
    for name in options.only:
        began = time.monotonic()
        with competitor(name == "competed"):
            others = PASSES + 1 if name == "slower" else PASSES
            found = [compared(others, options.effort, seed, guard).verdicts[OTHER] for seed in range(options.runs)]
        report(name, found, time.monotonic() - began)


if __name__ == "__main__":
    main()
