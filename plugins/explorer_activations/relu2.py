import torch.nn.functional as F
from torch import Tensor, nn


class ReLU2(nn.Module):
    """max(0, x)^2. So et al. 2021, arXiv:2109.08668 (Primer)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x).square()
