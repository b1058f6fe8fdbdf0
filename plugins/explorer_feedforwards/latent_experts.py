from typing import NamedTuple

from torch import Tensor, nn

from explorer import Activation, Norm
from explorer_feedforwards.experts import Experts


class LatentSizes(NamedTuple):
    experts: int
    hidden: int
    latent: int


class LatentExperts(nn.Module):
    """W_up norm(sum_e w_e E_e(W_down x)): experts that work in a narrower width, (N, dim) -> (N, dim).

    Kimi Team 2026 (K3), arXiv:2607.24653. The experts are `latent` wide on both sides.
    """

    def __init__(self, dim: int, activation: Activation, bias: bool, dropout: float, *, sizes: LatentSizes, norm: Norm):
        super().__init__()
        experts, hidden, latent = sizes
        self.down = nn.Linear(dim, latent, bias=bias)
        self.experts = Experts(latent, activation, bias, dropout, experts=experts, hidden=hidden)
        self.norm = norm(latent)
        self.up = nn.Linear(latent, dim, bias=bias)

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """weights (N, top_k) of the experts chosen (N, top_k)."""
        return self.up(self.norm(self.experts(self.down(x), weights, chosen)))

    def flops_per_token(self, top_k: int) -> int:
        """4 d l for the way into the latent width and back, and the experts in it."""
        return 4 * self.up.out_features * self.up.in_features + self.experts.flops_per_token(top_k)

    # What a residual may rescale, one rule: nothing that stands before the norm, which takes any factor out again.

    def input_weights(self) -> list[Tensor]:
        return []

    def output_weights(self) -> list[Tensor]:
        """What writes into the stream."""
        return [self.up.weight]
