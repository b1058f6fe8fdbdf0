"""What a trace collects: one row per operator call, and the sums over rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

from explorer.cost.products import Products


@dataclass(frozen=True)
class Row:
    """One operator call. FLOPs: 1 multiply-add = 2; only matrix products count.

    op: `aten::mm`, or the name of a fused function. matmul_flops: with the full attention rectangle;
    matmul_flops_exact: visible query-key pairs only, None where they are not known, `note` says why.
    backward: ran inside the autograd engine (a recomputed forward too).
    counted: False for an operator that has no rule; its zeros say nothing.
    """

    op: str
    matmul_flops: int
    matmul_flops_exact: int | None
    backward: bool
    note: str | None = None
    counted: bool = True


@dataclass(frozen=True)
class Counts:
    """Sums over rows; `matmul_flops_exact` is None, with the reason, as soon as one row's is.

    incomplete: operators without a rule and their calls, `lab::mix x2`: what they compute is not in the sums.
    """

    matmul_flops: int
    matmul_flops_exact: int | None
    exact_reason: str | None
    incomplete: tuple[str, ...]


def total(rows: Iterable[Row]) -> Counts:
    """The sums over `rows`, each as in `Counts`."""
    dense, exact = 0, 0
    reasons: dict[str, None] = {}
    unknown: Counter[str] = Counter()
    for row in rows:
        dense += row.matmul_flops
        if row.matmul_flops_exact is None:
            reasons[row.note or f"{row.op}: which pairs are visible is not known"] = None
        else:
            exact += row.matmul_flops_exact
        if not row.counted:
            unknown[row.op] += 1
    reason = "; ".join(reasons) or None
    incomplete = tuple(f"{op} x{calls}" for op, calls in unknown.items())
    return Counts(dense, None if reason else exact, reason, incomplete)


class Ledger:
    """Rows in order of execution."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._pauses = 0

    def record(self, op: str, products: Products) -> None:
        """A call whose matrix products are known."""
        if not self._pauses:
            self.rows.append(Row(op, products.dense, products.exact, _in_backward(), products.reason))

    def record_free(self, op: str) -> None:
        """A call that holds no matrix product."""
        if not self._pauses:
            self.rows.append(_free_row(op, _in_backward()))

    def record_unknown(self, op: str) -> None:
        """A call that may hold a matrix product which nobody can count."""
        if not self._pauses:
            self.rows.append(Row(op, 0, 0, _in_backward(), "no rule for this operator", counted=False))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Nothing is recorded inside."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def totals(self) -> Counts:
        """The sums over all rows so far."""
        return total(self.rows)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


@cache
def _free_row(op: str, backward: bool) -> Row:
    return Row(op, 0, 0, backward)
