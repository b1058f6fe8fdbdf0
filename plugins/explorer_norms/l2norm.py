from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn


class L2Norm(nn.Module):
    """x / max(||x||_2, eps) over the last axis, without parameters. Henry et al. 2020, arXiv:2010.04245 (as QK-norm).

    The length is taken in float32 whatever the dtype of x; the result has the dtype of x. A vector of zeros stays one.

    eps: least length that is divided by. scale: of the result, `unit` or `sqrt_dim`: times sqrt(dim), an RMSNorm whose
    eps is 0. affine: true adds a gain per channel, which starts at 1.
    """

    def __init__(
        self,
        dim: int,
        *,
        eps: Annotated[float, Ge(1e-30)] = 1e-12,  # what is smaller, or its inverse, is no number of float32
        scale: Literal["unit", "sqrt_dim"] = "unit",
        affine: bool = False,
    ):
        super().__init__()
        self.eps, self.scale = eps, dim**0.5 if scale == "sqrt_dim" else 1.0
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)  # (..., 1)
        y = x * (self.scale / length.clamp_min(self.eps))
        return (y if self.weight is None else y * self.weight).to(x.dtype)
