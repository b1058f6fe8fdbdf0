import torch.nn.functional as F
from torch import Tensor, nn


class GeGLU(nn.Module):
    """gelu(gate) * up with the exact GELU. Shazeer 2020, arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.gelu(gate) * up
