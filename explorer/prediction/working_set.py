"""What lies between two uses of the same bytes: how far away a pass finds its operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.cost.ledger.rows import Row


@dataclass(frozen=True)
class WorkingSet:
    """Bytes. weights: of all weights between two uses of one. moved: different bytes that a pass reads and writes."""

    weights: float
    moved: float

    @staticmethod
    def of(rows: Sequence[Row], copies: float = 1) -> WorkingSet:
        """Of a pass; copies: of the weights that are used in turn, infinity where no cache ever holds them."""
        weights = sum(row.read.weights for row in rows if not row.backward)
        activations = (row.read.total - row.read.weights + row.written.total for row in rows)
        # Activations are as often as not the same bytes again: those of one row stand for all.
        return WorkingSet(copies * weights if weights else 0.0, weights + max(activations, default=0))
