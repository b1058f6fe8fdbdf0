from typing import Annotated

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn


class SiTU(nn.Module):
    """beta tanh(x / beta) sigmoid(x), sigmoid tanh unit. Kimi Team 2026, arXiv:2607.24653 (Kimi K3), eq. 12, its gate.

    A SiLU whose identity is capped. Computed in float32 and cast back.

    beta: the cap; the larger, the nearer to SiLU.
    """

    def __init__(self, *, beta: Annotated[float, Gt(0), Le(1e30)] = 4.0):
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return (self.beta * torch.tanh(wide / self.beta) * torch.sigmoid(wide)).to(x.dtype)
