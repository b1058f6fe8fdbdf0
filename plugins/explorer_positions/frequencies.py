"""Angular frequencies shared by the rotary and the sinusoidal position."""

import torch
from torch import Tensor


def frequencies(base: float, width: int, device: torch.device | None = None) -> Tensor:
    """base^(-2i / width), i = 0 ... width / 2 - 1, in radians a position: (width / 2,), always float32."""
    # 1 / base^x as in the code that trained the published models: at 100,000 tokens the last bit is an angle of 0.01.
    return 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=device) / width)


def angles(positions: Tensor, frequency: Tensor) -> Tensor:
    """position * frequency, (T, width / 2) in float32: bfloat16 cannot even hold the position 257."""
    return positions[:, None] * frequency
