import torch
from torch import Tensor, nn


class DyT(nn.Module):
    """gamma * tanh(alpha x) + beta, dynamic tanh: no statistics. Zhu et al. 2025, arXiv:2503.10622.

    alpha is one number, gamma and beta are per channel and start at 1 and 0.

    init: where alpha starts; the paper takes 0.5 everywhere but in large language models.
    """

    def __init__(self, dim: int, *, init: float = 0.5):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((), init))
        self.gamma, self.beta = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.beta, self.gamma, torch.tanh(self.alpha * x)).to(x.dtype)
