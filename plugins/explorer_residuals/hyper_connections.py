from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Le
from torch import Tensor, nn

from explorer import KeepsFloat32, Lengths, Residual, Site, wide_dtype, without_autocast
from explorer_residuals.streams import PLACEMENTS, copied

Read = tuple[Tensor, Tensor, Tensor]


class HyperConnections(KeepsFloat32, Residual):
    """x = A_m^T H, H' = A_r^T H + B^T F(x) over n streams H. Zhu et al. 2024 (Hyper-Connections), arXiv:2409.19606.

    H (n, dim) starts as n copies of the embedding, lives to the end of the stack and leaves as the sum of its rows.
    A = (A_m | A_r) is (n, n + 1): A_m starts one-hot, at the site's index modulo n, A_r as the identity and B (n) as
    ones, so that each stream starts as the plain residual.

    dynamic: A and B gain a part that reads the streams, s_a tanh(N(H) W_a) and s_b tanh(N(H) W_b), with N a LayerNorm
    of each stream, W starting at 0, s_a and s_b at 0.01. The paper leaves the static A and B out of weight decay.
    A, B, both scales and the sums of static and dynamic part are float32, whatever the dtype of H: in bfloat16 most of
    0.01 tanh would be lost beside 1.
    """

    placements: ClassVar[tuple[str, ...]] = PLACEMENTS
    wide: ClassVar[tuple[str, ...]] = ("alpha", "beta", "alpha_scale", "beta_scale")

    def __init__(self, dim: int, site: Site, *, streams: Annotated[int, Ge(1), Le(256)] = 4, dynamic: bool = True):
        super().__init__()
        self.dim, self.streams, self.dynamic = dim, streams, dynamic
        if site.end:
            return
        dtype = wide_dtype()
        one_hot = torch.tensor([[float(row == site.index % streams)] for row in range(streams)], dtype=dtype)
        self.alpha = nn.Parameter(torch.cat([one_hot, torch.eye(streams, dtype=dtype)], dim=-1))
        self.beta = nn.Parameter(torch.ones(streams, dtype=dtype))
        if dynamic:
            self.norm = nn.LayerNorm(dim)
            self.weight = nn.Parameter(torch.zeros(streams + 2, dim))  # W_a, then W_b
            self.alpha_scale = nn.Parameter(torch.tensor(0.01, dtype=dtype))
            self.beta_scale = nn.Parameter(torch.tensor(0.01, dtype=dtype))

    def enter(self, x: Tensor) -> Tensor:
        return copied(x, self.streams)

    def read(self, state: Tensor) -> tuple[Tensor, Read]:
        alpha, beta = self.coefficients(state)
        # A_r^T H = H + (A_r - 1)^T H: rounded to the dtype of H, the difference keeps what A_r itself would lose.
        off = alpha - F.pad(torch.eye(self.streams, dtype=alpha.dtype, device=alpha.device), (1, 0))
        with without_autocast(state):
            mixed = off.transpose(-1, -2).to(state.dtype) @ state  # (B, T, n + 1, dim)
        # A copy, and not a view: what the sublayer keeps for its backward would keep all n + 1 rows.
        return mixed[..., 0, :].contiguous(), (state, mixed[..., 1:, :], beta)

    def write(self, state: Read, y: Tensor) -> Tensor:
        streams, moved, beta = state
        beta, y = beta.to(streams.dtype), y.to(streams.dtype)
        return torch.addcmul(streams + moved, beta.unsqueeze(-1), y.unsqueeze(-2))

    def leave(self, state: Tensor) -> Tensor:
        return state.sum(-2)

    def closed_form(self, at: Lengths) -> int:
        """2 n (n + 1) d FLOPs a token for the mix, dynamic 2 n d (n + 2) more.

        B^T F(x) is an outer product, which is not a matrix product here.
        """
        mix, moving = self.streams + 1, self.streams + 2 if self.dynamic else 0
        return at.batch * at.tokens * 2 * self.streams * self.dim * (mix + moving)

    def coefficients(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """A (B, T, n, n + 1) and B (B, T, n) in float32 for streams (B, T, n, dim); static ones without (B, T)."""
        wide = wide_dtype(streams.dtype)
        alpha, beta = self.alpha.to(wide), self.beta.to(wide)
        if not self.dynamic:
            return alpha, beta
        with without_autocast(streams):
            moved = F.linear(self.norm(streams), self.weight)  # (B, T, n, n + 2)
        moved = moved.to(wide).tanh()
        alpha = torch.addcmul(alpha, self.alpha_scale.to(wide), moved[..., :-1])
        return alpha, torch.addcmul(beta, self.beta_scale.to(wide), moved[..., -1])
