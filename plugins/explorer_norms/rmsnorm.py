from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """(offset + weight) * x / sqrt(mean(x^2) + eps) over the last axis. Zhang & Sennrich 2019, arXiv:1910.07467.

    Statistics are taken in float32 whatever the dtype of x; the result has the dtype of x.

    offset: 1 stores the gain as its difference from one (Gemma, Qwen3-Next). The gain starts at 1 with any offset.
    affine: false leaves out the gain.
    cast: where a float16 or bfloat16 result is rounded. `llama`: x_hat, then the product; `gemma`: the product only.
    """

    def __init__(
        self,
        dim: int,
        *,
        eps: Annotated[float, Gt(0)] = 1e-6,
        offset: float = 0.0,
        affine: bool = True,
        cast: Literal["llama", "gemma"] = "llama",
    ):
        super().__init__()
        self.shape, self.eps, self.offset, self.cast = (dim,), eps, offset, cast
        self.weight = nn.Parameter(torch.full((dim,), 1.0 - offset)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        if self.weight is None:
            return F.rms_norm(x, self.shape, None, self.eps)
        wide = torch.promote_types(x.dtype, torch.float32)
        if self.cast == "llama" and x.dtype != wide:
            # Without a weight the fused call returns x_hat rounded to the dtype of x: the first of the two roundings.
            return (self._gain(self.weight) * F.rms_norm(x, self.shape, None, self.eps)).to(x.dtype)
        if self.offset == 0 and self.weight.dtype == x.dtype:
            return F.rms_norm(x, self.shape, self.weight, self.eps)
        # 1 + weight needs float32: bfloat16 near 1 has steps of 2^-7, which would drop small weights.
        return F.rms_norm(x.to(wide), self.shape, self._gain(self.weight.to(wide)), self.eps).to(x.dtype)

    def _gain(self, weight: Tensor) -> Tensor:
        return weight + self.offset if self.offset else weight
