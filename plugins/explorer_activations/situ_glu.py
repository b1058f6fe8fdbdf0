from typing import Annotated

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn


class SiTUGLU(nn.Module):
    """[b tanh(gate / b) sigmoid(gate)] [c tanh(up / c)], b = beta, c = linear_beta. Kimi Team 2026, arXiv:2607.24653.

    Eq. 12 of the Kimi K3 report. Both factors are capped, so |y| <= b c; near 0 and for large betas it is SwiGLU.
    Computed in float32 and cast back.

    beta: cap of the gate. linear_beta: cap of the up-projection, null: it stays linear.
    """

    def __init__(
        self,
        *,
        beta: Annotated[float, Gt(0), Le(1e30)] = 4.0,
        linear_beta: Annotated[float, Gt(0), Le(1e30)] | None = 25.0,
    ):
        super().__init__()
        self.beta, self.linear_beta = beta, linear_beta

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        wide = torch.promote_types(gate.dtype, torch.float32)
        g, u = gate.to(wide), up.to(wide)
        if self.linear_beta is not None:
            u = self.linear_beta * torch.tanh(u / self.linear_beta)
        return (self.beta * torch.tanh(g / self.beta) * torch.sigmoid(g) * u).to(gate.dtype)
