"""All costs of a result as plain rows with exact numbers: one per combination, workload, scope and block name."""

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
Combination = Mapping[str, Any]
Cost = Mapping[str, Any]
Workload = Mapping[str, Any]

IDENTITY = ("id", "label")
STATE = ("baseline", "baseline_id", "skipped", "error")
WORKLOAD = (
    *("phase", "batch", "tokens", "context", "source", "dtype", "weight_dtype", "kv_dtype"),
    *("optimizer", "recompute"),
)
PART = ("scope", "name", "layers", "params", "active_params", "shared_params")
INTENSITY = "arithmetic_intensity"
COUNTS = (
    "matmul_flops",
    "matmul_flops_exact",
    "elementwise_ops",
    "moved_bytes",
    "fused_bytes",
    INTENSITY,
    "weight_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_full_windows",
    "kv_cache_bytes",
    "kernels",
)
MEMORY = ("weights", "gradients", "optimizer", "activations", "peak", "inference_peak")
LATENCY = (
    *("source", "device", "impl", "regime", "median_ms", "low_ms", "high_ms", "first_call_ms", "rounds", "verdict"),
    *("reason", "of", "error", "validated", "basis"),
)
"""Of the first of a cost's latencies; ENTRIES says how many there are, all of which stand in the JSON only."""
RATIO = {"ratio": "value", "ratio_low": "low", "ratio_high": "high"}
ENTRIES = "entries"

_LINE = (*WORKLOAD, *PART, *COUNTS, *(f"memory_{key}" for key in MEMORY), "incomplete")


def columns(document: Document) -> list[str]:
    """The names of the columns. An axis is ``choices.PATH``, since its name may be that of another column."""
    choices = [f"choices.{axis}" for axis in document["axes"]]
    timing = [f"latency_{key}" for key in (*LATENCY, *RATIO, ENTRIES)]
    return [*IDENTITY, *choices, *STATE, *_LINE, *timing]


def rows(document: Document) -> Iterator[list[Any]]:
    """The rows, in the order of the document; a combination without costs (skipped) is one row, its numbers None."""
    axes = list(document["axes"])
    for combination in document["combinations"]:
        head = _head(combination, axes)
        for cost in combination["costs"]:
            yield [*head, *_cost(combination, cost)]
        if not combination["costs"]:
            yield head + [None] * (len(columns(document)) - len(head))


def entries_left_out(document: Document) -> int:
    """How many latencies the rows do not show: all but the first of each cost."""
    costs = (cost for combination in document["combinations"] for cost in combination["costs"])
    return sum(max(len(cost["latencies"]) - 1, 0) for cost in costs)


def lines_of(combination: Combination) -> Iterator[dict[str, Any]]:
    """What is told of each cost of one combination, by the names of the columns."""
    for cost in combination["costs"]:
        yield dict(zip(_LINE, _cost(combination, cost), strict=False))


def _head(combination: Combination, axes: list[str]) -> list[Any]:
    identity = [combination[key] for key in IDENTITY]
    choices = [combination["choices"].get(axis) for axis in axes]
    return [*identity, *choices, *(combination[key] for key in STATE)]


def _cost(combination: Combination, cost: Cost) -> list[Any]:
    params, latency = combination["params"], cost["latency"] or {}
    ratio = latency.get("ratio") or {}
    model = cost["scope"] == "model" or params["model"] is None
    whole = [params["active"], params["shared"]] if model else [None, None]
    return [
        *(cost["workload"].get(key) for key in WORKLOAD),
        cost["scope"],
        cost["name"],
        cost_layers(combination, cost),
        cost_params(combination, cost),
        *whole,
        *(cost.get(key) for key in COUNTS),
        *((cost["memory"] or {}).get(key) for key in MEMORY),
        "; ".join(cost["incomplete"]),
        *(latency.get(key) for key in LATENCY),
        *(ratio.get(key) for key in RATIO.values()),
        len(cost["latencies"]),
    ]


def cost_params(combination: Combination, cost: Cost) -> int | None:
    """The parameters of what a cost entry describes: the whole model, or the block of that name."""
    params = combination["params"]
    named: dict[str, int] = {block["name"]: block["params"] for block in params["blocks"]}
    found: int | None = params["model"] if cost["scope"] == "model" else named.get(cost["name"], params["block"])
    return found


def cost_layers(combination: Combination, cost: Cost) -> int | None:
    """How many layers are the block that a cost entry describes; None for the whole model."""
    if cost["scope"] == "model":
        return None
    named: dict[str, int] = {block["name"]: block["layers"] for block in combination["params"]["blocks"]}
    return named.get(cost["name"])
