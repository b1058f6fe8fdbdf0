from torch import Tensor, nn

from explorer import Activation, Norm
from explorer_feedforwards.experts import Experts


class LatentExperts(nn.Module):
    """W_up norm(sum_e w_e E_e(W_down x)): experts that work in a narrower width, (N, dim) -> (N, dim).

    Kimi Team 2026 (K3), arXiv:2607.24653. The experts are `latent` wide on both sides.
    """

    def __init__(
        self,
        dim: int,
        activation: Activation,
        bias: bool,
        dropout: float,
        *,
        experts: int,
        hidden: int,
        latent: int,
        norm: Norm,
    ):
        super().__init__()
        self.down = nn.Linear(dim, latent, bias=bias)
        self.experts = Experts(latent, activation, bias, dropout, experts=experts, hidden=hidden)
        self.norm = norm(latent)
        self.up = nn.Linear(latent, dim, bias=bias)

    def forward(self, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """weights (N, top_k) of the experts chosen (N, top_k)."""
        return self.up(self.norm(self.experts(self.down(x), weights, chosen)))

    def input_weights(self) -> list[Tensor]:
        """What does not write into the stream: the norm stands between it and the experts."""
        return [self.down.weight, *self.experts.input_weights(), *self.experts.output_weights()]

    def output_weights(self) -> list[Tensor]:
        """What writes into the stream."""
        return [self.up.weight]
