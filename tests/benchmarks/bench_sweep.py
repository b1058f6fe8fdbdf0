"""A study of a thousand to a million rows, against counting each with another tool; run as a script.

    python tests/benchmarks/bench_sweep.py [--powers 3 4 5 6] [--rounds 1] [--sample 40]

Eight axes, models of 16 layers. Each size runs in a fresh Python: measured are its wall time and largest resident set,
with start-up, loading, counting every cost of every row, and writing them all to Parquet. The audit has its own time
and is off. Peers, in the same run: a sample of rows, each built on meta and run under torch's FlopCounterMode, and a
few of them traced by fvcore; only dense products of forward. The clock is read with and without building the model.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXPERTS = {"experts": 8, "top_k": 2, "hidden": 1024}
# (options at 10^3, 10^4, 10^5, 10^6) of each axis, and its options.
AXES: dict[str, tuple[tuple[int, int, int, int], list[Any]]] = {
    "attention": (
        (5, 5, 10, 10),
        [
            "mha",
            {"gqa": {"kv_heads": 4}},
            {"gqa": {"kv_heads": 8}},
            "mla",
            "linear",
            {"gqa": {"kv_heads": 1}},
            "differential",
            "gated_deltanet",
            {"mha": {"qk_norm": "rmsnorm"}},
            {"gqa": {"kv_heads": 4, "sinks": True}},
        ],
    ),
    "norm": ((5, 5, 5, 5), ["rmsnorm", "layernorm", "dyt", "l2norm", "scalenorm"]),
    "residual": (
        (2, 4, 10, 10),
        [
            "add",
            "mhc",
            "hyper_connections",
            "attnres",
            "rezero",
            "layerscale",
            "highway",
            "scaled",
            "skipinit",
            {"block_attnres": {"block_size": 4}},
        ],
    ),
    "activation": (
        (5, 5, 10, 10),
        ["swiglu", "relu", "gelu", "silu", "geglu", "reglu", "relu2", "mish", "tanh", "sigmoid"],
    ),
    "position": ((1, 5, 5, 5), ["rope", "none", "alibi", "t5_bias", "sinusoidal"]),
    "placement": ((2, 2, 2, 4), ["pre", "sandwich", "res_post", "none"]),
    "bias": ((2, 2, 2, 2), [False, True]),
    "feedforward": (
        (1, 1, 1, 5),
        [
            "dense",
            {"dense": {"hidden": 2048}},
            {"moe": EXPERTS},
            {"dense": {"hidden": 8192}},
            {"moe": {**EXPERTS, "experts": 16, "shared": 1}},
        ],
    ),
}
TOKENS = 512


def study(power: int) -> dict[str, Any]:
    """A blueprint with 10 ** power combinations, power from 3 to 6."""
    explore = {axis: options[: counts[power - 3]] for axis, (counts, options) in AXES.items()}
    size = {"dim": 1024, "heads": 16, "layers": 16, "vocab": 32_000}
    return {**size, "workloads": [{"tokens": TOKENS}], "explore": explore}


def one(power: int) -> None:
    """What a user's script does."""
    import explorer

    result = explorer.run(study(power), limit=10**power, audit=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.parquet"
        result.write_parquet(path)
        found = {**result.head["counts"], "megabytes": path.stat().st_size / 1e6}
    print(json.dumps(found))


def measured(power: int) -> dict[str, float]:
    """Wall seconds, CPU seconds and MiB of a fresh Python."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, __file__, "--one", str(power)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"10^{power} failed: {text}")
    return {
        **json.loads(text),
        "seconds": seconds,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss / 1024,
    }


def peers(count: int) -> dict[str, float]:
    """Mean seconds for a row of the million: by FlopCounterMode without and with building, by fvcore without."""
    import explorer
    from explorer.errors import RefusedError

    combinations = explorer.load(study(6)).combinations(10**6)
    places = random.Random(0).sample(range(len(combinations.places)), 4 * count)
    times: dict[str, list[float]] = {"FlopCounterMode": [], "FlopCounterMode and building": [], "fvcore": []}
    for place in places:
        plan = combinations.rows[place].plan
        if plan is None or len(times["FlopCounterMode"]) == count:
            continue
        try:
            _time(plan, times, fvcore=len(times["fvcore"]) < max(count // 8, 3))
        except RefusedError:
            continue
    return {name: statistics.mean(seconds[1:]) for name, seconds in times.items()}  # the first one warms up


def _time(plan: Any, times: dict[str, list[float]], *, fvcore: bool) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from explorer.assembly.build import build_model

    start = time.perf_counter()
    model = build_model(plan, device="meta", dtype=torch.bfloat16).eval()
    building = time.perf_counter() - start
    ids = torch.zeros(1, TOKENS, dtype=torch.int64, device="meta")

    def count() -> None:
        with torch.no_grad(), FlopCounterMode(display=False):
            model(ids)

    seconds = _seconds(count)
    times["FlopCounterMode"].append(seconds)
    times["FlopCounterMode and building"].append(building + seconds)
    if fvcore:
        times["fvcore"].append(_seconds(lambda: _by_fvcore(model, ids)))


def _by_fvcore(model: Any, ids: Any) -> None:
    import torch
    from fvcore.nn import FlopCountAnalysis  # type: ignore[import-untyped]

    from explorer.cost.crosscheck.tracing import traceable

    with torch.no_grad(), traceable():
        found = FlopCountAnalysis(model, ids)
        found.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none").total()


def _seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--powers", type=int, nargs="*", default=[3, 4, 5, 6])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        one(options.one)
        return
    print(f"load before: {os.getloadavg()[0]:.2f}, {os.cpu_count()} CPUs")
    titles = ("product", "rows", "skipped", "merged", "options", "seconds", "CPU s", "ms/row", "MiB", "MB written")
    print("".join(f"{title:>12}" for title in titles))
    seconds = {}
    for power in options.powers:
        rounds = [measured(power) for _ in range(options.rounds)]
        found = min(rounds, key=lambda one: one["seconds"])
        seconds[power] = statistics.median(one["seconds"] for one in rounds)
        counts = [found[key] for key in ("product", "rows", "skipped", "merged")]
        counts.append(sum(len(options) for options in study(power)["explore"].values()))
        times = [seconds[power], found["cpu"], 1000 * seconds[power] / found["product"]]
        print(
            "".join(f"{count:>12,}" for count in counts)
            + "".join(f"{value:>12.3f}" for value in times)
            + f"{max(one['memory'] for one in rounds):>12.0f}{found['megabytes']:>12.1f}"
        )
    most = max(options.powers)
    for name, each in peers(options.sample).items():
        ratio = each / (seconds[most] / 10**most)
        print(f"{name:<30}{1000 * each:>10.1f} ms for a row: {ratio:>10,.0f} times as long as here at 10^{most}")
    print("targets at 10^6: 20 s, 2 GB, 1,000 times cheaper than FlopCounterMode, 2,000 times cheaper than fvcore")


if __name__ == "__main__":
    main()
