"""Result documents written by hand, in the JSON form of DESIGN section 8."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

PREFILL = {"phase": "prefill", "batch": 1, "tokens": 2048, "context": 2048, "dtype": "bfloat16"}
DECODE = {"phase": "decode", "batch": 8, "tokens": 1, "context": 131072, "dtype": "bfloat16"}
TRAIN = {"phase": "train", "batch": 1, "tokens": 2048, "context": 2048, "dtype": "float32"}
H200 = {"source": "measured", "device": "NVIDIA H200", "impl": "eager", "regime": "device", "rounds": 20}


def cost(workload: dict[str, Any], scope: str = "block", name: str = "block", **changes: Any) -> dict[str, Any]:
    """A cost entry; ``median`` gives it a latency."""
    median = changes.pop("median", None)
    timed = {**H200, "median_ms": median, "low_ms": (median or 0) * 0.98, "high_ms": (median or 0) * 1.02}
    latency = {**timed, "first_call_ms": 120.0, "verdict": "slower", "reason": None} if median else None
    counted = {
        "matmul_flops": 893353197568,
        "matmul_flops_exact": 876177588224,
        "weight_bytes": 436224000,
        "kv_bytes_per_token": 4096,
        "kv_bytes_per_token_full_windows": 4096,
        "kv_cache_bytes": 8388608,
    }
    missing = ("elementwise_ops", "moved_bytes", "fused_bytes", "arithmetic_intensity", "kernels", "memory")
    unknown = dict.fromkeys(missing)
    head = {"workload": workload, "scope": scope, "name": name}
    tail = {"incomplete": [], "notes": [], "latencies": [latency] if latency else [], "latency": latency}
    return {**head, **counted, **unknown, **tail, **changes}


def combination(label: str, choices: dict[str, str], costs: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """A combination; ``block``, ``model``, ``blocks`` set its parameters."""
    block, model = changes.pop("block", 218112000), changes.pop("model", None)
    blocks = changes.pop("blocks", [{"name": "block", "layers": 32, "params": block}])
    params = {"block": block, "blocks": blocks, "model": model, "active": model or block, "shared": 0}
    params["active_reason"] = None
    state = {"baseline": False, "baseline_id": "base", "skipped": None, "error": None, "resolved": {}}
    head = {"id": label.replace(" ", "-"), "label": label, "choices": choices}
    return {**head, **state, "params": params, "costs": costs, **changes}


def skipped(label: str, choices: dict[str, str], reason: str) -> dict[str, Any]:
    """A combination that was refused."""
    return combination(label, choices, [], skipped=reason, params=None)


def document(combinations: list[dict[str, Any]], axes: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """A result document around combinations."""
    rows = sum(c["skipped"] is None for c in combinations)
    counts = {"product": len(combinations) + 4, "rows": rows, "skipped": len(combinations) - rows, "merged": 4}
    return {
        "schema": 1,
        "blueprint": {"name": "quickstart", "path": "quickstart.yaml", "digest": "0123abcd"},
        "environment": {"python": "3.11.7", "torch": "2.13.0", "threads": 2},
        "axes": axes or {},
        "counts": counts,
        "combinations": combinations,
    }


def study() -> dict[str, Any]:
    """A block over four axes, two workloads: a row skipped, one without exact FLOPs, one with an uncounted op."""
    axes = {
        "norm": ["rmsnorm", "layernorm"],
        "activation": ["swiglu", "gelu"],
        "attention": ["gqa:kv_heads=8", "mha"],
        "residual": ["add", "deepnorm"],
    }
    chosen = [
        ("rmsnorm", "swiglu", "gqa:kv_heads=8", "add"),
        ("rmsnorm", "swiglu", "mha", "add"),
        ("rmsnorm", "gelu", "gqa:kv_heads=8", "add"),
        ("layernorm", "swiglu", "gqa:kv_heads=8", "add"),
        ("layernorm", "gelu", "mha", "add"),
    ]
    combinations = []
    for index, names in enumerate(chosen):
        costs = [cost(PREFILL, matmul_flops=893353197568 + index * 10**10), cost(DECODE, kv_bytes_per_token=16384)]
        if index == 2:
            costs[0].update(matmul_flops_exact=None, notes=["matmul_flops_exact: a mask of its own in sdpa"])
        if index == 3:
            costs[0].update(incomplete=["lab::mix x2"])
        choices = dict(zip(axes, names, strict=True))
        combinations.append(combination(", ".join(names), choices, costs, block=218112000 + index * 8192))
    combinations[0].update(baseline=True, baseline_id=combinations[0]["id"])
    for other in combinations[1:]:
        other["baseline_id"] = combinations[0]["id"]
    choices = dict(zip(axes, ("rmsnorm", "swiglu", "mha", "deepnorm"), strict=True))
    refused = skipped("rmsnorm, swiglu, mha, deepnorm", choices, "residual deepnorm is not defined for placement pre")
    return document([*combinations, refused], axes)


def model() -> dict[str, Any]:
    """One whole model without axes, its layers not all alike, weights tied."""
    costs = [
        cost(PREFILL, name="local", matmul_flops=10**12),
        cost(PREFILL, name="global", matmul_flops=2 * 10**12, matmul_flops_exact=10**12),
        cost(PREFILL, "model", "model", matmul_flops=40737764802560, matmul_flops_exact=39 * 10**12),
    ]
    blocks = [
        {"name": "local", "layers": 21, "params": 198195712},
        {"name": "global", "layers": 21, "params": 2 * 10**8},
    ]
    one = combination("gemma-2-9b", {}, costs, block=None, blocks=blocks, model=9241705984, baseline=True)
    one["params"]["shared"] = 917504000
    one["baseline_id"] = one["id"]
    return document([one])


def measured() -> dict[str, Any]:
    """Whole models with latency; one ran out of memory while measuring."""
    axes = {"attention": ["gqa:kv_heads=8:qk_norm=rmsnorm", "mha", "多头注意力:heads=32"]}
    combinations = []
    for index, name in enumerate(axes["attention"]):
        median = [12.345, 15.678, None][index]
        costs = [cost(PREFILL, median=median), cost(PREFILL, "model", "model", matmul_flops=32938104193024 + index)]
        combinations.append(combination(name, {"attention": name}, costs, model=8030261248 + index * 10**9))
        combinations[-1].update(baseline=index == 0, baseline_id=combinations[0]["id"])
    failure = {**dict.fromkeys(combinations[0]["costs"][0]["latency"]), "source": "measured", "device": "NVIDIA H200"}
    failure["reason"] = "out of memory while measuring"
    combinations[2]["costs"][0].update(latencies=[failure], latency=failure)
    combinations[2]["error"] = "block: out of memory while measuring"
    combinations[1]["costs"][0]["latency"]["ratio"] = {"value": 1.27, "low": 1.25, "high": 1.305}
    return document(combinations, axes)


DOCUMENTS: dict[str, Callable[[], dict[str, Any]]] = {"study": study, "model": model, "measured": measured}


@pytest.fixture
def make() -> SimpleNamespace:
    """What writes documents and their parts."""
    parts = {"cost": cost, "combination": combination, "skipped": skipped, "document": document}
    return SimpleNamespace(**parts, **DOCUMENTS, prefill=PREFILL, decode=DECODE, train=TRAIN)


@pytest.fixture(params=sorted(DOCUMENTS))
def result(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each of the documents."""
    return DOCUMENTS[request.param]()
