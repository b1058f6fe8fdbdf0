import torch.nn.functional as F
from torch import Tensor, nn


class ReGLU(nn.Module):
    """max(0, gate) * up. Shazeer 2020, arXiv:2002.05202."""

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        return F.relu(gate) * up
