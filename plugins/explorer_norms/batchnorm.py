from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Gt, Le
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """weight * (x - mean) / sqrt(var + eps) + bias per channel. Ioffe & Szegedy 2015, arXiv:1502.03167.

    A counter-example: in training mean and var are those of all tokens of all samples together, so later tokens and
    other samples leak into each output. In evaluation they are running averages, kept in float32 with any dtype.

    eps: added to var. momentum: weight of the newest batch in the running averages.
    """

    leaks: ClassVar[str] = (
        "in training its mean and variance are taken over all tokens of all samples, "
        "so that later tokens and other samples move each output"
    )

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, dim: int, *, eps: Annotated[float, Gt(0)] = 1e-5, momentum: Annotated[float, Gt(0), Le(1)] = 0.1
    ):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim, dtype=torch.float32))
        self.register_buffer("running_var", torch.ones(dim, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        rows = x.reshape(-1, x.shape[-1])  # (tokens of all samples, dim)
        running: tuple[Tensor | None, Tensor | None] = self.running_mean.to(wide), self.running_var.to(wide)
        if self.training and rows.shape[0] == 1:
            running = None, None  # one token has no unbiased variance to remember
        # Not F.batch_norm, which refuses one token in training: a norm takes any leading axes.
        weight, bias, cudnn = self.weight.to(wide), self.bias.to(wide), torch.backends.cudnn.enabled
        y = torch.batch_norm(rows, weight, bias, *running, self.training, self.momentum, self.eps, cudnn)
        return y.view(x.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        wide = torch.promote_types(self.running_mean.dtype, torch.float32)
        self.running_mean, self.running_var = self.running_mean.to(wide), self.running_var.to(wide)
        return self
