import torch.nn.functional as F
from torch import Tensor, nn


class SiLU(nn.Module):
    """x * sigmoid(x), also called Swish. Elfwing, Uchibe & Doya 2017, arXiv:1702.03118."""

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)
