from collections.abc import Callable
from typing import Annotated, Any

import torch
from annotated_types import Gt
from torch import Tensor

from explorer import Position
from explorer_positions.distances import distances, laid_out


class ALiBi(Position):
    """-m_h |i - j| added to the scores of query i and key j. Press, Smith & Lewis 2021, arXiv:2108.12409.

    m_h = 2^(-8 (h + 1) / heads), h = 0, 1, ... Where heads is no power of 2, the first n are those of n heads, the
    largest power of 2 below, and the others every second one of 2n heads (as the authors' code and BLOOM).
    Slopes are float32 constants. Without a causal mask a later key counts as an earlier one; the paper has none.

    scale: of all slopes; Falcon-RW has 1 / sqrt(head_dim), which divides its biased scores.
    """

    slopes: Tensor

    def __init__(self, heads: int, *, scale: Annotated[float, Gt(0)] = 1.0):
        super().__init__()
        self.heads, self.scale = heads, scale
        self.register_buffer("slopes", _slopes(heads, scale), persistent=False)

    def bias(self, T: int, S: int, offset: int) -> Tensor:
        # The offset cancels: queries and keys are counted from the same place.
        return laid_out(-self.slopes[:, None] * distances(T, S, self.slopes.device).abs(), T, S)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Made anew: fn may have rounded them to bfloat16, or have allocated them without values (to_empty from meta).
        super()._apply(fn, recurse)
        self.slopes = _slopes(self.heads, self.scale, self.slopes.device)
        return self


def _slopes(heads: int, scale: float, device: torch.device | None = None) -> Tensor:
    n = 2 ** (heads.bit_length() - 1)  # the largest power of 2 up to heads
    slopes = [*_geometric(n), *_geometric(2 * n)[::2]][:heads]
    return torch.tensor([scale * slope for slope in slopes], dtype=torch.float32, device=device)


def _geometric(heads: int) -> list[float]:
    return [2.0 ** (-8 * (h + 1) / heads) for h in range(heads)]
