import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Aggregate(nn.Module):
    """sum_i a_i v_i over S sources v, a = softmax_i(w . RMSNorm(v_i)): attention with a learned query, over depth.

    w (dim) starts at 0: the mean of the sources. Scores are not divided by sqrt(dim), values are not normed.
    The gain g of the norm is folded into the query: w . (g * v / rms) = (w * g) . v / rms. Softmax in float32.

    Sources come in groups (B, T, n, dim), with the scales of all of them, (B, T, S): see `scale`.
    """

    def __init__(self, dim: int, *, key_norm: bool, eps: float):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.query = nn.Parameter(torch.zeros(dim))
        self.key_gain = nn.Parameter(torch.ones(dim)) if key_norm else None

    def scale(self, source: Tensor) -> Tensor | None:
        """sqrt(dim) / rms(v) in float32, (B, T, 1), of a source (B, T, dim); None without a key norm."""
        if self.key_gain is None:
            return None
        wide = torch.promote_types(source.dtype, torch.float32)
        norm = torch.linalg.vector_norm(source, dim=-1, keepdim=True, dtype=wide)
        return self.dim * torch.rsqrt(norm.square() + self.dim * self.eps)

    def forward(self, groups: Sequence[Tensor], scales: Tensor | None) -> Tensor:
        query = self.query if self.key_gain is None else self.query * self.key_gain
        # sqrt(dim) goes from the product into the scale: a sum of dim products could overflow float16.
        query = (query * self.dim**-0.5).unsqueeze(0)
        scores = torch.cat([F.linear(group, query).squeeze(-1) for group in groups], dim=-1)  # (B, T, S)
        wide = torch.promote_types(scores.dtype, torch.float32)
        grown = scores.to(wide) * (math.sqrt(self.dim) if scales is None else scales)
        return _weighted_sum(torch.softmax(grown, dim=-1).to(scores.dtype), groups)


def joined(scales: Tensor | None, scale: Tensor | None) -> Tensor | None:
    """The scales with that of one more source."""
    if scales is None or scale is None:
        return scale
    return torch.cat([scales, scale], dim=-1)


def _weighted_sum(weights: Tensor, groups: Sequence[Tensor]) -> Tensor:
    """sum_i weights_i v_i, (B, T, dim), of weights (B, T, S) and sources in groups (B, T, n, dim)."""
    parts = weights.unsqueeze(-2).flatten(0, 1).split([group.shape[-2] for group in groups], dim=-1)
    total = parts[0] @ groups[0].flatten(0, 1)  # (B T, 1, dim)
    for part, group in zip(parts[1:], groups[1:], strict=True):
        total = total.baddbmm_(part, group.flatten(0, 1))
    return total.view(*weights.shape[:-1], -1)
