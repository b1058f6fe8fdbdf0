"""Rotary frequencies for texts longer than those of the training.

Each form has `of(frequency, base)`: the frequencies (dims / 2,) that stand for base^(-2i / dims), in float32, and an
`amplitude`, by which cosines and sines are multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Linear:
    """f / factor: positions are interpolated. Chen et al. 2023, arXiv:2306.15595."""

    factor: float

    amplitude: ClassVar[float] = 1.0

    def of(self, frequency: Tensor, base: float) -> Tensor:
        return frequency / self.factor


@dataclass(frozen=True)
class Llama3:
    """f for `high` or more turns in the first `original` tokens, f / factor for `low` or fewer, in between a blend.

    Llama Team 2024, arXiv:2407.21783, does not give the formula; it is that of the code of Llama 3.1.
    """

    factor: float
    original: int
    low: float = 1.0
    high: float = 4.0

    amplitude: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise ValueError(f"low {self.low} must be below high {self.high}")

    def of(self, frequency: Tensor, base: float) -> Tensor:
        turns = self.original / (2 * math.pi / frequency)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - kept) * frequency / self.factor + kept * frequency


@dataclass(frozen=True)
class YaRN:
    """f for `beta_fast` or more turns in the first `original` tokens, f / factor for `beta_slow` or fewer.

    Peng et al. 2023, arXiv:2309.00071. In between a ramp over the pairs, from and to whole ones with `truncate`
    (gpt-oss: without). attention_factor null: 0.1 ln(factor) + 1.
    """

    factor: float
    original: int
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True

    def __post_init__(self) -> None:
        if self.beta_fast < self.beta_slow:
            raise ValueError(f"beta_fast {self.beta_fast} must be at least beta_slow {self.beta_slow}")

    @property
    def amplitude(self) -> float:
        return 0.1 * math.log(self.factor) + 1.0 if self.attention_factor is None else self.attention_factor

    def of(self, frequency: Tensor, base: float) -> Tensor:
        """Raises: ValueError where base is not above 1."""
        if base <= 1:
            raise ValueError(f"yarn needs a base above 1, not {base}")
        pairs = frequency.shape[0]
        first, last = (self._pair(turns, pairs, base) for turns in (self.beta_fast, self.beta_slow))
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        # The end is bounded by the number of channels, not of pairs: so it is in the authors' code.
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        places = torch.arange(pairs, dtype=torch.float32, device=frequency.device)
        ramp = ((places - first) / max(last - first, 0.001)).clamp(0, 1)
        return ramp * frequency / self.factor + (1 - ramp) * frequency

    def _pair(self, turns: float, pairs: int, base: float) -> float:
        """The place i among the pairs, not rounded, that makes so many turns in `original` tokens."""
        return pairs * math.log(self.original / (turns * 2 * math.pi)) / math.log(base)
