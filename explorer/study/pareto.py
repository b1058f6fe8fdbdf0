"""Rows that no other row beats in everything that is counted: those worth measuring first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Row = dict[str, Any]
Values = NDArray[np.float64]

Figure = tuple[object, ...]

FIGURES = ("weight_bytes", "matmul_flops", "moved_bytes", "kv_cache_bytes")
"""Of each block on each workload; the less the better."""


def pareto(rows: Sequence[Row]) -> list[Row]:
    """The rows of which no other row has at most as much of every figure and less of one.

    Rows are compared only with those that have the same blocks and workloads. A figure that is not known beats nothing
    and is beaten by nothing.
    """
    alike: dict[tuple[Figure, ...], list[int]] = {}
    figures = [_figures(row) for row in rows]
    for index, of in enumerate(figures):
        alike.setdefault(tuple(of), []).append(index)
    best: set[int] = set()
    for names, indices in alike.items():
        values = np.array([[figures[index][name] for name in names] for index in indices])
        best |= {index for index, here in zip(indices, values, strict=True) if not _is_beaten(here, values)}
    return [row for index, row in enumerate(rows) if index in best]


def _figures(row: Row) -> Mapping[Figure, float]:
    """The figures of a row by block, workload and name; NaN where one is not known."""
    blocks = [cost for cost in row["costs"] if cost["scope"] == "block"]
    return {
        (cost["name"], *cost["workload"].items(), figure): float("nan") if cost[figure] is None else cost[figure]
        for cost in blocks
        for figure in FIGURES
    }


def _is_beaten(here: Values, others: Values) -> bool:
    return bool(((others <= here).all(axis=1) & (others < here).any(axis=1)).any())
