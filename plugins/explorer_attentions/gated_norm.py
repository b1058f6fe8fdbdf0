from collections.abc import Callable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer_attentions.chunks import wide

_ACTS: Mapping[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}


class GatedRMSNorm(nn.Module):
    """weight * x / sqrt(mean(x^2) + eps) * act(gate) over the last axis: the norm before the gate.

    RMSNorm of Zhang & Sennrich 2019, arXiv:1910.07467. x and gate (..., dim); computed in float32, returned in the
    dtype of the gate, which comes from the model where x comes from a float32 state.
    """

    def __init__(self, dim: int, eps: float, act: Literal["silu", "sigmoid"]):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps, self.act = eps, _ACTS[act]

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        y = F.rms_norm(wide(x), (x.shape[-1],), wide(self.weight), self.eps)
        return (y * self.act(wide(gate))).to(gate.dtype)
