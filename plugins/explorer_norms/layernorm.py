from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn


class LayerNorm(nn.Module):
    """weight * (x - mean(x)) / sqrt(var(x) + eps) + bias over the last axis. Ba, Kiros & Hinton 2016, arXiv:1607.06450.

    var is the biased variance (divided by dim). Statistics are taken in float32 inside torch's own kernel.

    bias: false leaves out the shift (PaLM). affine: false leaves out weight and bias (OLMo 1).
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Gt(0)] = 1e-5, bias: bool = True, affine: bool = True):
        super().__init__()
        self.shape, self.eps = (dim,), eps
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
