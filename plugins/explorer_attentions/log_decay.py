import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import KeepsFloat32, wide_dtype
from explorer_attentions.chunks import wide


class LogDecay(KeepsFloat32):
    """-exp(a) softplus(x + dt): the logarithm of what a state keeps in one step, at most 0.

    As in Mamba-2 (Dao & Gu 2024, arXiv:2405.21060): one rate a for each head, dt for each head and channel. With a
    floor it is floor sigmoid(exp(a) (x + dt)), which stays above the floor (Kimi K3, arXiv:2607.24653).

    Both parameters stay float32 in a bfloat16 model, and so does the result: the rounding of a decay is compounded over
    the whole text.

    Start: exp(a) uniform in [1, 16] and softplus(dt) log-uniform in [1e-3, 1e-1], both from Mamba-2's code.
    transformers starts Kimi Linear so, but Qwen3-Next with exp(a) in (0, 16) and dt = 1. With a floor exp(a) starts at
    1: our choice, for Kimi K3's start is not public (transformers' bounded gate of GLM has the same).
    """

    wide: ClassVar[tuple[str, ...]] = ("a_log", "dt")

    def __init__(self, heads: int, channels: int, floor: float | None = None):
        super().__init__()
        dtype = wide_dtype()
        rate = nn.init.uniform_(torch.empty(heads, 1, dtype=dtype), 1, 16)
        step = nn.init.uniform_(torch.empty(heads, channels, dtype=dtype), math.log(1e-3), math.log(1e-1)).exp()
        self.a_log = nn.Parameter(rate.log() if floor is None else torch.zeros_like(rate))
        self.dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus
        self.floor = floor

    def forward(self, x: Tensor) -> Tensor:
        rate, x = wide(self.a_log).exp(), wide(x) + self.dt  # (heads, 1), (..., heads, channels)
        return -rate * F.softplus(x) if self.floor is None else self.floor * torch.sigmoid(rate * x)
