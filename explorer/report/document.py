"""Reading a result document: which combinations, workloads and costs it holds."""

from explorer.blueprint.workload import training_words
from explorer.report.units import plural
from explorer.study.frame import Combination as Combination
from explorer.study.frame import Cost as Cost
from explorer.study.frame import Document as Document
from explorer.study.frame import Workload as Workload
from explorer.study.frame import cost_params as cost_params


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
    words += training_words(workload.get("optimizer"), workload.get("recompute"))
    return ", ".join(words)


def passes(workload: Workload) -> str:
    """Which passes the FLOPs of a workload cover."""
    return "fwd + bwd" if workload["phase"] == "train" else "fwd"
