"""FLOPs of matrix products, from shapes: 1 multiply-add = 2 FLOPs."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor


@dataclass(frozen=True)
class Products:
    """FLOPs of one call's products: dense with every query-key pair, exact with the visible ones (None: not known)."""

    dense: int
    exact: int | None
    reason: str | None = None

    def times(self, many: int) -> Products:
        """So many products of this size: backward of one has one for each operand."""
        return Products(many * self.dense, None if self.exact is None else many * self.exact, self.reason)


NO_PRODUCTS = Products(0, 0)


def plain(flops: int) -> Products:
    """Products without a mask: exact is dense."""
    return Products(flops, flops)


def by_group(left: Tensor, right: Tensor) -> Products:
    """2 x rows x K x N: each row meets the matrix of its own group only. Operands as `F.grouped_mm` takes them."""
    # A flat right operand splits its columns among the groups: together they are one matrix of N columns.
    rows = left.shape[1:] if left.dim() == 3 and right.dim() == 2 else left.shape
    return plain(2 * prod(rows) * right.shape[-1])


def attention(out: Tensor, query: Tensor, key: Tensor, pairs: int | None, reason: str | None = None) -> Products:
    """2 (k + v) FLOPs per query-key pair and head: the scores and the weighted sum.

    out (..., heads, T, v), query (..., heads, T, k), key (..., kv_heads, S, k); leading axes may broadcast to out's.
    pairs: visible (query, key) pairs of one head; None: not known, for `reason`.
    """
    T, S = query.shape[-2], key.shape[-2]
    per_pair = 2 * prod(out.shape[:-2]) * (query.shape[-1] + out.shape[-1])
    return Products(per_pair * T * S, None if pairs is None else per_pair * pairs, reason)


def index(query: Tensor, key: Tensor, pairs: int) -> Products:
    """2 (k + 1) FLOPs per pair and head: the scores and their weighted sum over heads; `pairs` are the visible ones.

    query (..., heads, T, k), key (..., S, k).
    """
    per_pair = 2 * prod(query.shape[:-2]) * (query.shape[-1] + 1)
    return Products(per_pair * query.shape[-2] * key.shape[-2], per_pair * pairs)


def top_left_pairs(T: int, S: int) -> int:
    """Pairs j <= i of T queries and S keys, both counted from the start: what SDPA's `is_causal` keeps."""
    square = min(T, S)
    return square * (square + 1) // 2 + (T - square) * S


ATTENTION_KERNELS = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
"""Operators of torch `aten::_scaled_dot_product_...`, each with its `_backward`."""
