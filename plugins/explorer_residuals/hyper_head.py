from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import KeepsFloat32, wide_dtype, without_autocast
from explorer_residuals.streams import weighted_sum


class HyperHead(KeepsFloat32):
    """sum_i w_i X_i of n streams X (B, T, n, dim), w = sigmoid(a (v phi) + b), v = RMSNorm(vec X). DeepSeek-V4 2026,
    arXiv:2606.19348.

    phi starts at N(0, 0.02^2), a at 0.01, b at 0. Parameters and weights are float32, whatever the dtype of X.
    """

    wide: ClassVar[tuple[str, ...]] = ("phi", "alpha", "bias")

    def __init__(self, dim: int, streams: int, *, eps: float):
        super().__init__()
        self.eps, dtype = eps, wide_dtype()
        self.phi = nn.Parameter(torch.empty(streams, streams * dim, dtype=dtype))
        self.alpha = nn.Parameter(torch.tensor(0.01, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(streams, dtype=dtype))
        nn.init.normal_(self.phi, std=0.02)

    def forward(self, streams: Tensor) -> Tensor:
        projected = project(streams, self.phi, self.eps)  # (B, T, n)
        weights = torch.addcmul(self.bias.to(projected.dtype), self.alpha.to(projected.dtype), projected).sigmoid()
        return weighted_sum(weights, streams)


def project(streams: Tensor, phi: Tensor, eps: float) -> Tensor:
    """RMSNorm(vec X) phi^T in float32: one norm without gain over all n * dim numbers of X (B, T, n, dim)."""
    flat = streams.flatten(-2).to(wide_dtype(streams.dtype))  # (B, T, n * dim)
    norm = torch.linalg.vector_norm(flat, dim=-1, keepdim=True)
    with without_autocast(flat):
        projected = F.linear(flat, phi.to(flat.dtype))
    # The scale acts on the few projected numbers: the same, without a normalised copy of all streams.
    return projected * torch.rsqrt(norm.square() / flat.shape[-1] + eps)
