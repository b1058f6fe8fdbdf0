"""How long the rows of a study take to make, from a thousand to a million; run as a script.

    python tests/benchmarks/bench_product.py [--powers 3 4 5 6]

Eleven axes, most of which interact: attention, its key-value heads and its query norm rest on each other, norms,
placements and residual on the final norm and a skip rule, named options set several fields. Each size runs in a fresh
Python: made are all rows with ids, what is merged, skipped and rests, and the baseline of each. The peer is the product
alone, as tuples of ``itertools.product``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from typing import Any

# Five options each; so many of them are explored as the power of ten says, of the others the first option.
BY_FIVE: dict[str, list[Any]] = {
    "attention.kv_heads": [8, 4, 2, 1, "as_written"],
    "norm": ["layernorm", "rmsnorm", {"rmsnorm": {"eps": 1e-5}}, "scalenorm", "none"],
    "heads": [32, 16, 64, 128, 48],
    "activation": ["gelu", "swiglu", "geglu", "relu2", "silu"],
    "feedforward.hidden": [11008, 14336, 16384, {"ratio": 4}, None],
    "placement": ["pre", "post", "sandwich", "res_post", "none"],
}
# Two options each.
BY_TWO: dict[str, Any] = {
    "attention.qk_norm": ["rmsnorm", None],
    "residual": ["add", "deepnorm"],
    "position": ["rope", {"rope": {"base": 500_000}}],
    "era": {"classic": {"bias": True, "final_norm": True, "dropout.attention": 0.1}, "modern": {}},
}
ATTENTIONS = [{"gqa": {"kv_heads": 8}}, "mha", "mla", "gated_deltanet"]


def study(power: int) -> dict[str, Any]:
    """A blueprint with 10 ** power combinations, power from 3 to 6."""
    twos = min(power - 2, len(BY_TWO))
    explore: dict[str, Any] = {"attention": ATTENTIONS[: 2 ** (power - twos)]}
    for index, (axis, values) in enumerate(BY_FIVE.items()):
        explore[axis] = values if index < power else values[:1]
    for index, (axis, options) in enumerate(BY_TWO.items()):
        if isinstance(options, dict):
            explore[axis] = options if index < twos else {"modern": {}}
        else:
            explore[axis] = options if index < twos else options[:1]
    return {
        "dim": 4096,
        "heads": 32,
        "layers": 32,
        "vocab": 32_000,
        "explore": explore,
        "skip": [{"residual": "deepnorm", "placement": "pre"}, {"attention.kv_heads": 1, "norm": "none"}],
        "baseline": {"era": "modern", "activation": "gelu"},
    }


def mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(power: int) -> dict[str, float]:
    """Seconds and the largest resident set of one size."""
    import explorer

    blueprint = explorer.load(study(power))
    before = mebibytes()
    start = time.perf_counter()
    found = blueprint.combinations(limit=10**power)
    made = time.perf_counter()
    ids = found.ids()
    named = time.perf_counter()
    partners = found.partners(found.skipped)
    codes, reasons = found.reasons()
    end = time.perf_counter()
    first = found.rows[0].plan
    assert first is not None
    assert len(ids) == len(partners) == len(codes) == found.product - found.merged
    start_peer = time.perf_counter()
    peer = sum(1 for _ in itertools.product(*(range(n) for n in found.space.grid.shape)))
    assert peer == found.product == 10**power
    return {
        "rows": len(ids),
        "skipped": int(found.skipped.sum()),
        "reasons": len(reasons),
        "make": made - start,
        "ids": named - made,
        "baselines": end - named,
        "total": end - start,
        "peer": time.perf_counter() - start_peer,
        "before": before,
        "memory": mebibytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--powers", type=int, nargs="*", default=[3, 4, 5, 6])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(one(options.one)))
        return
    titles = (
        "product",
        "rows",
        "skipped",
        "make s",
        "ids s",
        "baselines s",
        "total s",
        "itertools s",
        "MiB",
        "of it loaded",
    )
    print("".join(f"{title:>13}" for title in titles))
    for power in options.powers:
        command = [sys.executable, __file__, "--one", str(power)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        counts = [10**power, int(found["rows"]), int(found["skipped"])]
        seconds = [found[key] for key in ("make", "ids", "baselines", "total", "peer")]
        memory = [found["memory"], found["before"]]
        print(
            "".join([f"{n:>13,}" for n in counts] + [f"{s:>13.3f}" for s in seconds] + [f"{m:>13.0f}" for m in memory])
        )
    print("target at 1,000,000: 3 s, 600 MiB")


if __name__ == "__main__":
    main()
