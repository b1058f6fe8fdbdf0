from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import wide_dtype, without_autocast


class Aggregate(nn.Module):
    """sum_i a_i v_i over S sources v, a = softmax_i(w . RMSNorm(v_i)): attention with a learned query, over depth.

    w (dim) starts at 0: the mean of the sources. Scores are not divided by sqrt(dim), values are not normed.
    The gain g of the norm is folded into the query: w . (g * v / rms) = (w * g) . v / rms.

    Sources come in groups (B, T, n, dim), with the scales of all of them, (B, T, S): see `scale`. They are float32
    (`widened`), so that scores, softmax and sum are: a state in bfloat16 would be half the size, but cast, and kept for
    backward in float32, at every site again; sums of bfloat16 have three to five times the error of one rounding.
    """

    def __init__(self, dim: int, *, key_norm: bool, eps: float):
        super().__init__()
        self.dim, self.eps = dim, eps
        self.query = nn.Parameter(torch.zeros(dim))
        self.key_gain = nn.Parameter(torch.ones(dim)) if key_norm else None

    def scale(self, source: Tensor) -> Tensor | None:
        """1 / rms(v), (B, T, 1), of a source (B, T, dim); None without a key norm."""
        if self.key_gain is None:
            return None
        norm = torch.linalg.vector_norm(source, dim=-1, keepdim=True)
        return torch.rsqrt(norm.square() / self.dim + self.eps)

    def forward(self, groups: Sequence[Tensor], scales: Tensor | None) -> Tensor:
        """(B, T, dim) in the dtype of the groups."""
        query = self.query.to(groups[0].dtype)
        query = (query if self.key_gain is None else query * self.key_gain).unsqueeze(0)
        with without_autocast(query):
            scores = torch.cat([F.linear(group, query).squeeze(-1) for group in groups], dim=-1)  # (B, T, S)
            grown = scores if scales is None else scores * scales
            return _weighted_sum(torch.softmax(grown, dim=-1), groups)


def widened(source: Tensor) -> Tensor:
    """A source as the state holds it: in at least float32."""
    return source.to(wide_dtype(source.dtype))


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
