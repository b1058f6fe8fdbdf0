"""All costs of a result as plain rows with exact numbers: one per combination, workload, scope and block name."""

from collections.abc import Iterator
from typing import Any

from explorer.report.document import Combination, Cost, Document, cost_layers, cost_params

IDENTITY = ("id", "label")
STATE = ("baseline", "baseline_id", "skipped", "error")
WORKLOAD = ("phase", "batch", "tokens", "context", "source", "dtype", "weight_dtype", "kv_dtype")
PART = ("scope", "name", "layers", "params", "active_params", "shared_params")
COUNTS = (
    "matmul_flops",
    "matmul_flops_exact",
    "elementwise_ops",
    "moved_bytes",
    "fused_bytes",
    "weight_bytes",
    "kv_bytes_per_token",
    "kv_bytes_per_token_full_windows",
    "kv_cache_bytes",
    "kernels",
)
LATENCY = ("source", "device", "impl", "regime", "median_ms", "low_ms", "high_ms", "first_call_ms", "rounds", "verdict")


def columns(document: Document) -> list[str]:
    """The names of the columns. An axis is ``choices.PATH``, since its name may be that of another column."""
    choices = [f"choices.{axis}" for axis in document["axes"]]
    timing = [f"latency_{key}" for key in LATENCY]
    return [*IDENTITY, *choices, *STATE, *WORKLOAD, *PART, *COUNTS, "incomplete", *timing]


def rows(document: Document) -> Iterator[list[Any]]:
    """The rows, in the order of the document; a combination without costs (skipped) is one row, its numbers None."""
    axes = list(document["axes"])
    for combination in document["combinations"]:
        head = _head(combination, axes)
        for cost in combination["costs"]:
            yield [*head, *_cost(combination, cost)]
        if not combination["costs"]:
            yield head + [None] * (len(columns(document)) - len(head))


def _head(combination: Combination, axes: list[str]) -> list[Any]:
    identity = [combination[key] for key in IDENTITY]
    choices = [combination["choices"].get(axis) for axis in axes]
    return [*identity, *choices, *(combination[key] for key in STATE)]


def _cost(combination: Combination, cost: Cost) -> list[Any]:
    params, latency = combination["params"], cost["latency"] or {}
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
        "; ".join(cost["incomplete"]),
        *(latency.get(key) for key in LATENCY),
    ]
