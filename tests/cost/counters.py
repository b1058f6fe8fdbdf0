"""Why other counters print another number, told by the cross-check itself: a table of the docs.

python -m tests.cost.counters
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.crosscheck import reasons
from explorer.cost.crosscheck.check import crosscheck
from explorer.cost.crosscheck.reasons import Known
from explorer.cost.crosscheck.tool import Tool

BLOCK: dict[str, Any] = {
    "dim": 768,
    "heads": 12,
    "norm": "rmsnorm",
    "attention": {"gqa": {"kv_heads": 4}},
    "feedforward": {"dense": {"hidden": 2048}},
}
MIXTURE = {"norm": "layernorm", "feedforward": {"moe": {"experts": 8, "top_k": 2, "hidden": 1024}}}
CASES: Mapping[str, tuple[dict[str, Any], Workload]] = {
    "Grouped-query attention and SwiGLU, prefill of 1,024 tokens": (BLOCK, Workload("prefill", 1, 1024)),
    "The same block, training": (BLOCK, Workload("train", 1, 1024)),
    "Eight experts, LayerNorm, prefill of 1,024 tokens": ({**BLOCK, **MIXTURE}, Workload("prefill", 1, 1024)),
    "Gated DeltaNet, training on 128 tokens": ({**BLOCK, "attention": "gated_deltanet"}, Workload("train", 1, 128)),
}


def tools(fields: dict[str, Any], workload: Workload) -> tuple[Tool, ...]:
    """What all tools print for a block; every number follows from ours and known reasons."""
    plan = explorer.load(fields).plan()
    counted = count(plan, [workload])
    (cost,), (params,) = counted.costs, counted.params.blocks
    found = crosscheck(
        plan,
        cost.name,
        cost.workload,
        matmul_flops=cost.matmul_flops,
        exact=cost.matmul_flops_exact,
        params=params.params,
    )
    assert (found.reason, found.unexplained) == (None, ()), found
    return found.tools


def table() -> str:
    """A table for each case, and all known reasons."""
    lines = []
    for title, (fields, workload) in CASES.items():
        lines += [f"**{title}.** Dim 768, 12 heads, batch 1.", ""]
        lines += ["| tool | of | it prints | in FLOPs | here | why |", "| --- | --- | ---: | ---: | ---: | --- |"]
        lines += [_line(tool) for tool in tools(fields, workload)]
        lines.append("")
    lines += ["| reason | what it is |", "| --- | --- |"]
    lines += [f"| {known.name} | {known.why} |" for known in all_reasons()]
    return "\n".join([*lines, ""])


def all_reasons() -> list[Known]:
    """Those without a name of their own for each operator too."""
    fixed = [value for value in vars(reasons).values() if isinstance(value, Known)]
    return [*fixed, reasons.unknown_operator("an operator"), reasons.custom_operator("a plugin's operator")]


def _line(tool: Tool) -> str:
    what = {"matmul_flops": "dense products", "matmul_flops_exact": "exact products", "params": "parameters"}
    assert tool.printed is not None, tool
    why = "; ".join(map(str, tool.reasons)) or "equal"
    converted = "" if tool.quantity == "params" else f"{tool.converted:,}"
    cells = [tool.name, what[tool.quantity], f"{tool.printed:,} {tool.unit}", converted, f"{tool.ours:,}", why]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(table())
