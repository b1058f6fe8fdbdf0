import torch.nn.functional as F
from torch import Tensor, nn


class SwiGLU(nn.Module):
    """silu(gate) * up. Shazeer 2020, arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.silu(gate) * up
