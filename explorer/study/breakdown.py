"""What each kind of part takes of a cost: attention, feedforward, norm, residual, embedding, head, loss."""

from __future__ import annotations

from explorer.cost.costs import Cost
from explorer.cost.ledger.rows import Counts

ORDER = ("embedding", "norm", "attention", "feedforward", "residual", "head", "loss")

Figures = dict[str, int | None]


def breakdown(cost: Cost) -> dict[str, Figures]:
    """For each kind that a cost has its figures, which add up to those of the whole; empty where nothing is known."""
    kinds = [kind for kind in ORDER if kind in cost.by_kind]
    kinds += [kind for kind in cost.by_kind if kind not in ORDER]
    return {kind: _figures(cost.by_kind[kind]) for kind in kinds}


def _figures(counts: Counts) -> Figures:
    """moved_weights, moved_activations, moved_cache: bytes read and written, which make up moved_bytes."""
    return {
        "matmul_flops": counts.matmul_flops,
        "matmul_flops_exact": counts.matmul_flops_exact,
        "elementwise_ops": counts.elementwise_ops,
        "cheap_ops": counts.cheap_ops,
        "transcendental_ops": counts.transcendental_ops,
        "reduction_ops": counts.reduction_ops,
        "moved_bytes": counts.moved_bytes,
        "moved_weights": counts.read_weights + counts.written_weights,
        "moved_activations": counts.read_activations + counts.written_activations,
        "moved_cache": counts.read_cache + counts.written_cache,
        "fused_bytes": counts.fused_bytes,
        "kernels": counts.kernels,
    }
