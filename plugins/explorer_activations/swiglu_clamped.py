from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn


class ClampedSwiGLU(nn.Module):
    """g sigmoid(alpha g) (u + up_offset), g = min(gate, limit), u = up clamped to [-limit, limit].

    OpenAI 2025, arXiv:2508.10925 (gpt-oss: limit 7, alpha 1.702, up_offset 1); DeepSeek-V4, arXiv:2606.19348: limit 10.

    limit: where the gate is cut from above and the up-projection on both sides. alpha: steepness of the sigmoid.
    up_offset: added to the clamped up-projection.
    """

    def __init__(self, *, limit: Annotated[float, Gt(0)] = 7.0, alpha: float = 1.0, up_offset: float = 0.0):
        super().__init__()
        self.limit, self.alpha, self.up_offset = limit, alpha, up_offset

    def forward(self, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        gate = F.silu(gate) if self.alpha == 1 else gate * torch.sigmoid(self.alpha * gate)
        return gate * (up + self.up_offset if self.up_offset else up)
