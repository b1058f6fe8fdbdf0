import torch
from torch import Tensor, nn


class Tanh(nn.Module):
    """tanh(x) = (e^x - e^-x) / (e^x + e^-x), the activation before ReLU; BERT's pooler has it. No paper of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)
