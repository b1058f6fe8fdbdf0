from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from explorer import Position
from explorer_positions.frequencies import angles, frequencies
from explorer_positions.rotation import rotated_halves, rotated_neighbours
from explorer_positions.scaling import Scaling


class RoPE(Position):
    """(a, b) -> (a cos t - b sin t, b cos t + a sin t), t = p base^(-2i / dims), for pair i of q and k at position p.

    Su et al. 2021, arXiv:2104.09864. Angles, cosines and sines are in float32; the result has the dtype of x.
    At -p it rotates back; YaRN's attention factor multiplies there as well (in DeepSeek-V4, which does that, it is 1).

    dims: channels that are rotated, null: head_dim. at: whether those are the first or the last ones of a head.
    pairing: pair i is (i, i + dims / 2), `half` (Llama), or (2i, 2i + 1), `interleaved` (the paper, GPT-J, DeepSeek).
    scaling: other frequencies, for texts longer than those of the training.
    """

    frequency: Tensor

    def __init__(
        self,
        head_dim: int,
        *,
        base: Annotated[float, Gt(0)] = 10000.0,
        dims: Annotated[int, Ge(2)] | None = None,
        at: Literal["start", "end"] = "start",
        pairing: Literal["half", "interleaved"] = "half",
        scaling: Scaling | None = None,
    ):
        super().__init__()
        self.base, self.dims, self.at, self.pairing, self.scaling = base, dims or head_dim, at, pairing, scaling
        if self.dims % 2:
            raise ValueError(f"dims {self.dims} must be even: channels are rotated in pairs")
        if self.dims > head_dim:
            raise ValueError(f"dims {self.dims} must be at most head_dim {head_dim}")
        self.amplitude = 1.0 if scaling is None else scaling.amplitude
        self.register_buffer("frequency", self._frequency(), persistent=False)

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[-1] == self.dims:
            return self._rotated(x, positions)
        if self.at == "start":
            return torch.cat([self._rotated(x[..., : self.dims], positions), x[..., self.dims :]], dim=-1)
        return torch.cat([x[..., : -self.dims], self._rotated(x[..., -self.dims :], positions)], dim=-1)

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        angle = angles(positions, self.frequency)  # (T, dims / 2)
        cos, sin = angle.cos(), angle.sin()
        if self.amplitude != 1:
            cos, sin = cos * self.amplitude, sin * self.amplitude
        turn = rotated_halves if self.pairing == "half" else rotated_neighbours
        return turn(x.to(torch.promote_types(x.dtype, torch.float32)), cos, sin).to(x.dtype)

    def _frequency(self, device: torch.device | None = None) -> Tensor:
        plain = frequencies(self.base, self.dims, device)
        return plain if self.scaling is None else self.scaling.of(plain, self.base)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Made anew: fn may have rounded them to bfloat16, or have allocated them without values (to_empty from meta).
        super()._apply(fn, recurse)
        self.frequency = self._frequency(self.frequency.device)
        return self
