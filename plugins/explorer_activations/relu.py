import torch.nn.functional as F
from torch import Tensor, nn


class ReLU(nn.Module):
    """max(0, x). Nair & Hinton 2010, Rectified linear units improve restricted Boltzmann machines (ICML)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)
