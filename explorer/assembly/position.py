"""The base class of positions: where a token stands may enter the embedding, the queries and keys, or the scores."""

from __future__ import annotations

from torch import Tensor, nn


class Position(nn.Module):
    """Does nothing; a position overrides what it needs.

    `positions` is an integer tensor (T,), counted from 0 at the start of the sequence (a cache's offset included).
    One instance serves a whole stack: it holds nothing that belongs to one layer.
    """

    max_tokens: int | None = None
    """Tokens that a table of learned positions holds; None: no limit."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Added to the embedding by the model: x (B, T, dim) -> (B, T, dim)."""
        return x

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Applied to queries and keys by an attention: x (B, heads, T, head_dim) -> the same shape."""
        return x

    def bias(self, T: int, S: int, offset: int) -> Tensor | None:
        """Added to the scores, broadcastable to (B, heads, T, S).

        Query i stands at offset + i, key j at offset + T - S + j.
        """
        return None
