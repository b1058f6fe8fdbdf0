"""Rows of the result document: one dict per combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from explorer.blueprint.combinations import Combination
from explorer.blueprint.resolved import resolved
from explorer.cost.costs import Cost, Counted, Params
from explorer.cost.ledger.rows import Counts
from explorer.study.breakdown import breakdown
from explorer.study.frame import MEMORY


def counted_row(row: Combination, counted: Counted, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """A combination with what it costs, and what its components warn of."""
    return {
        **_head(row),
        "skipped": None,
        "error": None,
        "warnings": list(warnings),
        "resolved": resolved(row.state),
        "params": _params(counted.params),
        "costs": [_cost(cost) for cost in counted.costs],
    }


def skipped_row(row: Combination, reason: str) -> dict[str, Any]:
    """A combination that is not built, and why."""
    nothing: dict[str, Any] = {"params": None, "costs": []}
    return {**_head(row), "skipped": reason, "error": None, "warnings": [], "resolved": resolved(row.state), **nothing}


def _head(row: Combination) -> dict[str, Any]:
    return {"id": row.id, "label": row.label, "choices": dict(row.choices), "baseline": False, "baseline_id": None}


def _params(params: Params) -> dict[str, Any]:
    return {
        "block": params.block,
        "blocks": [{"name": b.name, "layers": b.layers, "params": b.params} for b in params.blocks],
        "model": params.model,
        "active": params.active,
        "active_reason": params.active_reason,
        "shared": params.shared,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    spread, counts = cost.varies_by_layer, cost.counts
    return {
        "workload": cost.workload.to_dict(),
        "scope": cost.scope,
        "name": cost.name,
        "matmul_flops": cost.matmul_flops,
        "matmul_flops_exact": cost.matmul_flops_exact,
        "elementwise_ops": None if counts is None else counts.elementwise_ops,
        "moved_bytes": None if counts is None else counts.moved_bytes,
        "fused_bytes": None if counts is None else counts.fused_bytes,
        "arithmetic_intensity": None if counts is None else _intensity(counts),
        "weight_bytes": cost.weight_bytes,
        "kv_bytes_per_token": cost.kv.per_token,
        "kv_bytes_per_token_full_windows": cost.kv.per_token_full,
        "kv_cache_bytes": cost.kv.cache,
        "kernels": None if counts is None else counts.kernels,
        "breakdown": breakdown(cost),
        "incomplete": list(cost.incomplete),
        "notes": list(cost.notes),
        **({"varies_by_layer": list(spread)} if spread else {}),
        "memory": dict.fromkeys(MEMORY) if cost.memory is None else asdict(cost.memory),
        "latencies": [],
        "latency": None,
    }


def _intensity(counts: Counts) -> float | None:
    """FLOPs of matrix products for each byte moved; None where nothing moves."""
    return counts.matmul_flops / counts.moved_bytes if counts.moved_bytes else None
