from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn


class ScaleNorm(nn.Module):
    """g * x / max(||x||_2, eps) over the last axis, one gain g for the vector. Nguyen & Salazar 2019, arXiv:1910.05895.

    g starts at sqrt(dim), which gives the result the size of an RMSNorm's. The length is taken in float32 whatever the
    dtype of x; the result has the dtype of x.

    eps: least length that is divided by, as in the authors' code.
    """

    def __init__(self, dim: int, *, eps: Annotated[float, Ge(1e-30)] = 1e-5):
        super().__init__()
        self.eps = eps
        self.gain = nn.Parameter(torch.full((), dim**0.5))

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)  # (..., 1)
        return (x * (self.gain / length.clamp_min(self.eps))).to(x.dtype)
