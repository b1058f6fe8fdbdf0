from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from explorer import Position
from explorer_positions.frequencies import angles, frequencies


class Sinusoidal(Position):
    """x + PE, PE[p, 2i] = sin(p / 10000^(2i / dim)), PE[p, 2i + 1] = cos(same). Vaswani et al. 2017, arXiv:1706.03762.

    layout: `interleaved` as in the paper; `halves` has all sines first, then all cosines (Marian; tensor2tensor, which
    divides i by dim / 2 - 1 for its frequencies: here both layouts have the paper's).
    """

    frequency: Tensor

    def __init__(self, dim: int, *, layout: Literal["interleaved", "halves"] = "interleaved"):
        super().__init__()
        if dim % 2:
            raise ValueError(f"dim {dim} must be even: each frequency has a sine and a cosine")
        self.dim, self.layout = dim, layout
        self.register_buffer("frequency", frequencies(10000.0, dim), persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        angle = angles(positions, self.frequency)
        waves = (angle.sin(), angle.cos())
        table = torch.cat(waves, dim=-1) if self.layout == "halves" else torch.stack(waves, dim=-1).flatten(-2)
        return x + table.to(x.dtype)  # (T, dim) to each of the batch

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Made anew: fn may have rounded them to bfloat16, or have allocated them without values (to_empty from meta).
        super()._apply(fn, recurse)
        self.frequency = frequencies(10000.0, self.dim, self.frequency.device)
        return self
