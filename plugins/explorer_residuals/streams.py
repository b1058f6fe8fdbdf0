"""What residuals with several parallel streams share. A state of n streams is one tensor (B, T, n, dim)."""

from torch import Tensor

from explorer import without_autocast

PLACEMENTS = ("pre", "sandwich", "res_post", "none")
"""Not post: a norm on the state would normalise each stream by itself, which no paper defines."""


def copied(x: Tensor, streams: int) -> Tensor:
    """n copies of x (B, T, dim), as (B, T, n, dim)."""
    copies = x.unsqueeze(-2).expand(*x.shape[:-1], streams, x.shape[-1])
    return copies.contiguous()  # once, not again for every product that reads it


def weighted_sum(weights: Tensor, streams: Tensor) -> Tensor:
    """sum_i weights_i stream_i, (B, T, dim), of weights (B, T, n) or (n,) and streams (B, T, n, dim)."""
    with without_autocast(streams):
        return (weights.unsqueeze(-2).to(streams.dtype) @ streams).squeeze(-2)
