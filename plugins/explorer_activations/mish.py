import torch.nn.functional as F
from torch import Tensor, nn


class Mish(nn.Module):
    """x * tanh(ln(1 + e^x)). Misra 2019, arXiv:1908.08681."""

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)
