"""What is counted here for the same block and pass, as every tool is held against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from explorer.cost.crosscheck.one_pass import OnePass
from explorer.cost.ledger.trace import Trace
from explorer.registry.registry import CostRule


@dataclass(frozen=True)
class Ours:
    """matmul_flops and matmul_flops_exact of the whole pass, params of the layer; None: not known.

    backward: what a trace of the pass counts in backward. custom: FLOPs of operators that plugins have a rule for, by
    name, in the whole pass; custom_forward: in the forward alone.
    """

    matmul_flops: int | None
    matmul_flops_exact: int | None
    params: int | None
    backward: int = 0
    custom: Mapping[str, int] = field(default_factory=dict)
    custom_forward: Mapping[str, int] = field(default_factory=dict)


def ours_of(
    run: OnePass, matmul_flops: int | None, exact: int | None, params: int | None, rules: Mapping[str, CostRule]
) -> Ours:
    """With what a trace of the pass itself adds to the counted numbers."""
    with Trace(rules=rules) as trace:
        run.all()
    forward, whole = Counter[str](), Counter[str]()
    for row in trace.rows:
        if row.kind == "custom":
            whole[row.op] += row.matmul_flops
            forward[row.op] += 0 if row.backward else row.matmul_flops
    backward = sum(row.matmul_flops for row in trace.rows if row.backward)
    return Ours(matmul_flops, exact, params, backward, whole, forward)
