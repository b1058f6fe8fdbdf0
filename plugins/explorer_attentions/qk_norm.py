"""Norms of the heads of q or k: one for all heads, one for each, one over all of them at once."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from explorer import Norm


def head_norm(norm: Norm | None, over: str, heads: int, head_dim: int) -> nn.Module:
    """Maps (B, heads, T, head_dim) to the same shape; `over` is a key of `NORMS_OVER`."""
    return nn.Identity() if norm is None else NORMS_OVER[over](norm, heads, head_dim)


class EachHead(nn.Module):
    """A norm of its own for each head, one after the other: a kernel for each head, and a copy of their results.

    One kernel could serve all if their parameters lay in one tensor, but only a norm's own class knows how those act.
    A compiler fuses them.
    """

    def __init__(self, norm: Norm, heads: int, head_dim: int):
        super().__init__()
        self.norms = nn.ModuleList(norm(head_dim) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([norm(head) for norm, head in zip(self.norms, x.unbind(1), strict=True)], dim=1)


class AllHeads(nn.Module):
    """One norm over the channels of all heads of a token."""

    def __init__(self, norm: Norm, heads: int, head_dim: int):
        super().__init__()
        self.norm = norm(heads * head_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.transpose(1, 2).flatten(2)).unflatten(-1, (x.shape[1], -1)).transpose(1, 2)


NORMS_OVER: Mapping[str, Callable[[Norm, int, int], nn.Module]] = {
    "head": lambda norm, heads, head_dim: norm(head_dim),
    "each_head": EachHead,
    "all": AllHeads,
}
