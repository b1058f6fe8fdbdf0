"""Cross-checks of small blocks, for the tests of what other counters print."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer.cost.crosscheck import closed_form, flop_counter, with_fvcore, with_torchinfo
from explorer.cost.crosscheck.check import CrossCheck, crosscheck
from explorer.cost.crosscheck.tool import Tool
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry

FIXTURES = Path(__file__).parents[1] / "fixtures"
NOTHING = {
    "norm": "none",
    "placement": "none",
    "residual": "none",
    "position": "none",
    "attention": "none",
    "feedforward": "none",
}
BLOCK: dict[str, Any] = {"dim": 32, "heads": 4, "feedforward": {"dense": {"hidden": 48}}}
META, CPU = flop_counter.META, flop_counter.CPU
FVCORE, HANDLED, TORCHINFO, PAPERS = with_fvcore.NAME, with_fvcore.WITH_HANDLES, with_torchinfo.NAME, closed_form.NAME


PLUGINS = (str(FIXTURES / "bare_operators.py"), str(FIXTURES / "odd_components.py"))


@cache
def registry(plugins: tuple[str, ...]) -> Registry:
    return load_registry(plugins)


def checked(
    fields: dict[str, Any], workload: Workload, name: str = "block", off: int = 0, plugins: tuple[str, ...] = PLUGINS
) -> CrossCheck:
    """The cross-check of one block against what is counted, or against a count that is off by so much."""
    plan = explorer.load(fields, registry=registry(plugins)).plan()
    counted = count(plan, [workload])
    (cost,) = [cost for cost in counted.costs if cost.name == name]
    (params,) = [block.params for block in counted.params.blocks if block.name == name]
    return crosscheck(
        plan,
        name,
        cost.workload,
        matmul_flops=None if cost.matmul_flops is None else cost.matmul_flops + off,
        exact=None if cost.matmul_flops_exact is None else cost.matmul_flops_exact + off,
        params=params + off,
    )


def told(check: CrossCheck, tool: str, quantity: str = "matmul_flops") -> Tool:
    (found,) = [one for one in check.tools if (one.name, one.quantity) == (tool, quantity)]
    return found


def printed(check: CrossCheck, quantity: str = "matmul_flops") -> dict[str, int | None]:
    return {tool.name: tool.printed for tool in check.tools if tool.quantity == quantity}


def bare(**fields: Any) -> dict[str, Any]:
    return {"dim": 64, "heads": 1, **NOTHING, **fields}


def prefill(tokens: int, context: int | None = None, batch: int = 1, **other: Any) -> Workload:
    return Workload("prefill", batch, tokens, context, dtype="float32", **other)
