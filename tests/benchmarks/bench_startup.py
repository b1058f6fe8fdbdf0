"""How long `explorer run` takes against what torch's first meta operation costs anyway; run as a script.

    python tests/benchmarks/bench_startup.py [--rounds 7]

Both start a fresh Python. The two are run in turn, so that a busy machine slows both; the ratio of medians is printed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

PEER = [sys.executable, "-c", "import torch; a = torch.empty(1, device='meta'); a * a"]
OURS = [sys.executable, "-m", "explorer", "run", "blueprints/published/llama-3-8b.yaml"]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    seconds(PEER)
    seconds(OURS)  # both once, so that files are in the page cache
    pairs = [(seconds(PEER), seconds(OURS)) for _ in range(rounds)]
    peer, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"torch's first meta operation  {peer:.2f} s")
    print(f"explorer run llama-3-8b       {ours:.2f} s")
    spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f} over {rounds} pairs"
    print(f"ratio: median {statistics.median(ratios):.2f}, {spread} (target: 1.50)")
    print(f"largest resident set: {memory:.0f} MiB (target: 1,024)")


if __name__ == "__main__":
    main()
