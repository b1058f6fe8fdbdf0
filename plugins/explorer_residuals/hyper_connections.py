from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge
from torch import Tensor, nn

from explorer import Residual, Site
from explorer_residuals.streams import PLACEMENTS, copied

Read = tuple[Tensor, Tensor]


class HyperConnections(Residual):
    """x = A_m^T H, H' = A_r^T H + B^T F(x) over n streams H. Zhu et al. 2024 (Hyper-Connections), arXiv:2409.19606.

    H (n, dim) starts as n copies of the embedding, lives to the end of the stack and leaves as the sum of its rows.
    A = (A_m | A_r) is (n, n + 1): A_m starts one-hot, at the site's index modulo n, A_r as the identity and B (n) as
    ones, so that each stream starts as the plain residual.

    dynamic: A and B gain a part that reads the streams, s_a tanh(N(H) W_a) and s_b tanh(N(H) W_b), with N a LayerNorm
    of each stream, W starting at 0, s_a and s_b at 0.01. The paper leaves the static A and B out of weight decay.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS

    def __init__(self, dim: int, site: Site, *, streams: Annotated[int, Ge(1)] = 4, dynamic: bool = True):
        super().__init__()
        self.streams, self.dynamic = streams, dynamic
        if site.end:
            return
        one_hot = [float(row == site.index % streams) for row in range(streams)]
        self.alpha = nn.Parameter(torch.cat([torch.tensor(one_hot).unsqueeze(-1), torch.eye(streams)], dim=-1))
        self.beta = nn.Parameter(torch.ones(streams))
        if dynamic:
            self.norm = nn.LayerNorm(dim)
            self.weight = nn.Parameter(torch.zeros(streams + 2, dim))  # W_a, then W_b
            self.alpha_scale = nn.Parameter(torch.tensor(0.01))
            self.beta_scale = nn.Parameter(torch.tensor(0.01))

    def enter(self, x: Tensor) -> Tensor:
        return copied(x, self.streams)

    def read(self, state: Tensor) -> tuple[Tensor, Read]:
        alpha, beta = self.coefficients(state)
        mixed = alpha.transpose(-1, -2) @ state  # (B, T, n + 1, dim)
        # A copy, and not a view: what the sublayer keeps for its backward would keep all n + 1 rows.
        return mixed[..., 0, :].contiguous(), (mixed[..., 1:, :], beta)

    def write(self, state: Read, y: Tensor) -> Tensor:
        mixed, beta = state
        return torch.addcmul(mixed, beta.unsqueeze(-1), y.unsqueeze(-2))

    def leave(self, state: Tensor) -> Tensor:
        return state.sum(-2)

    def coefficients(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """A (B, T, n, n + 1) and B (B, T, n) for streams (B, T, n, dim); static ones without (B, T)."""
        if not self.dynamic:
            return self.alpha, self.beta
        moved = F.linear(self.norm(streams), self.weight).tanh()  # (B, T, n, n + 2)
        alpha = torch.addcmul(self.alpha, self.alpha_scale, moved[..., :-1])
        return alpha, torch.addcmul(self.beta, self.beta_scale, moved[..., -1])
