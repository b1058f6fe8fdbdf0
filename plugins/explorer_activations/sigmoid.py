import torch
from torch import Tensor, nn


class Sigmoid(nn.Module):
    """1 / (1 + e^-x), the logistic function, the classic of neural networks. No paper of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)
