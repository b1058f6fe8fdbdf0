"""Reading a result document: which combinations, workloads and costs it holds."""

from collections.abc import Mapping
from typing import Any

from explorer.report.units import plural

Document = Mapping[str, Any]
Combination = Mapping[str, Any]
Cost = Mapping[str, Any]
Workload = Mapping[str, Any]


def survivors(document: Document) -> list[Combination]:
    """The combinations that were counted, in the order of the study."""
    return [combination for combination in document["combinations"] if combination["skipped"] is None]


def skipped(document: Document) -> list[Combination]:
    """The combinations that were refused, in the order of the study."""
    return [combination for combination in document["combinations"] if combination["skipped"] is not None]


def workloads(document: Document) -> list[Workload]:
    """The distinct workloads, in order of first appearance."""
    found: list[Workload] = []
    for combination in document["combinations"]:
        for cost in combination["costs"]:
            if cost["workload"] not in found:
                found.append(cost["workload"])
    return found


def main_costs(combination: Combination, workload: Workload) -> list[Cost]:
    """The whole model's cost under this workload where it was counted, else those of the blocks."""
    costs = [cost for cost in combination["costs"] if cost["workload"] == workload]
    return [cost for cost in costs if cost["scope"] == "model"] or costs


def block_costs(combination: Combination, workload: Workload) -> list[Cost]:
    """The costs of the blocks under this workload."""
    return [cost for cost in combination["costs"] if cost["workload"] == workload and cost["scope"] == "block"]


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


def workload_text(workload: Workload) -> str:
    """{"phase": "decode", "batch": 8, ...} -> "decode, batch 8, 1 token, context 4,096, bfloat16"."""
    tokens, context, dtype = workload["tokens"], workload.get("context"), workload["dtype"]
    words = [workload["phase"], f"batch {workload['batch']:,}", plural(tokens, "token")]
    if context is not None and context != tokens:
        words.append(f"context {context:,}")
    if workload.get("source") is not None:
        words.append(f"source {workload['source']:,}")
    words.append(dtype)
    words += [
        f"{key.removesuffix('_dtype')} {workload[key]}"
        for key in ("weight_dtype", "kv_dtype")
        if workload.get(key) not in (None, dtype)
    ]
    return ", ".join(words)


def passes(workload: Workload) -> str:
    """Which passes the FLOPs of a workload cover."""
    return "fwd + bwd" if workload["phase"] == "train" else "fwd"
