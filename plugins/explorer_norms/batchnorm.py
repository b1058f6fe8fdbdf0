from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn

from explorer import KeepsFloat32, wide_dtype


class BatchNorm(KeepsFloat32):
    """weight * (x - mean) / sqrt(var + eps) + bias per channel. Ioffe & Szegedy 2015, arXiv:1502.03167.

    A counter-example: in training mean and var are those of all tokens of all samples together, so later tokens and
    other samples leak into each output. In evaluation they are running averages, kept in float32 with any dtype.

    eps: added to var. momentum: weight of the newest batch in the running averages.
    """

    leaks: ClassVar[str] = (
        "in training its mean and variance are taken over all tokens of all samples, "
        "so that later tokens and other samples move each output"
    )
    wide: ClassVar[tuple[str, ...]] = ("running_mean", "running_var")

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, dim: int, *, eps: Annotated[float, Gt(0)] = 1e-5, momentum: Annotated[float, Gt(0), Le(1)] = 0.1
    ):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim, dtype=wide_dtype()))
        self.register_buffer("running_var", torch.ones(dim, dtype=wide_dtype()))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])  # (tokens of all samples, dim)
        wide = wide_dtype(x.dtype)
        mean, var = self.running_mean.to(wide), self.running_var.to(wide)
        # One token has no unbiased variance to remember.
        remembers = self.training and rows.shape[0] > 1
        running: tuple[Tensor | None, Tensor | None] = (mean, var) if remembers or not self.training else (None, None)
        # Not F.batch_norm, which refuses one token in training: a norm takes any leading axes.
        weight, bias, cudnn = self.weight.to(wide), self.bias.to(wide), torch.backends.cudnn.enabled
        y = torch.batch_norm(rows, weight, bias, *running, self.training, self.momentum, self.eps, cudnn)
        if remembers and wide != self.running_mean.dtype:
            # What was moved is a copy.
            self.running_mean.copy_(mean)
            self.running_var.copy_(var)
        return y.view(x.shape)
