"""Which keys a query may see: the causal and window rule, said once for masks, SDPA flags and exact counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


def _clipped_sum(first: int, last: int, top: int) -> int:
    """Sum over n in first..last of min(max(n, 0), top), in closed form."""
    return _clipped_sum_to(last, top) - _clipped_sum_to(first - 1, top)


def _clipped_sum_to(n: int, top: int) -> int:
    if n <= 0:
        return 0
    if n <= top:
        return n * (n + 1) // 2
    return top * (top + 1) // 2 + (n - top) * top


class Sight(Protocol):
    """Which keys a query may see, as `attend` asks for it: `Visible`, or an attention's own rule with the same answers.

    mask may have the shape (T, S), or any that broadcasts to (B, heads, T, S); `pairs` then counts those of one head.
    """

    def pairs(self, T: int, S: int) -> int: ...

    def mask(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor: ...

    def everything(self, T: int, S: int) -> bool: ...

    def sdpa_causal(self, T: int, S: int) -> bool: ...


@dataclass(frozen=True)
class Visible:
    """Query i of T stands at place p = S - T + i among S keys and sees key j where p - before <= j <= p + after.

    causal: after = 0, before = window - 1 (all earlier keys without a window).
    not causal: everything, or with a window (window - 1) // 2 keys before and window // 2 after.
    A window counts the query's own key. Raises: ValueError for a window below 1.
    """

    causal: bool
    window: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window {self.window} must be at least 1: a query sees its own key")

    def pairs(self, T: int, S: int) -> int:
        """Number of (query, key) pairs that are visible; equals mask(T, S).sum(), without the tensor."""
        first, last = S - T, S - 1
        after = self._after()
        before = self._before()
        up_to = T * S if after is None else _clipped_sum(first + after + 1, last + after + 1, S)
        too_early = 0 if before is None else _clipped_sum(first - before, last - before, S)
        return up_to - too_early

    def mask(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        """Bool tensor (T, S), True = may attend."""
        place = torch.arange(S - T, S, device=device).unsqueeze(1)  # (T, 1)
        key = torch.arange(S, device=device).unsqueeze(0)  # (1, S)
        after = self._after()
        before = self._before()
        if after is None and before is None:
            return torch.ones(T, S, dtype=torch.bool, device=device)
        keep = None if after is None else key <= place + after
        if before is None:
            assert keep is not None, "a rule without limits was answered above"
            return keep
        late_enough = key >= place - before
        return late_enough if keep is None else keep & late_enough

    def everything(self, T: int, S: int) -> bool:
        """Whether every query sees every key, so that no mask is needed."""
        after = self._after()
        before = self._before()
        if after is not None and after < T - 1:
            return False
        return before is None or before >= S - 1

    def sdpa_causal(self, T: int, S: int) -> bool:
        """Whether SDPA's `is_causal=True` means the same; it aligns top-left, so only for T == S."""
        if not self.causal or T != S:
            return False
        return self.window is None or self.window >= S

    def _before(self) -> int | None:
        """Keys before its own that a query sees; None: all."""
        if self.window is None:
            return None
        return self.window - 1 if self.causal else (self.window - 1) // 2

    def _after(self) -> int | None:
        """Keys after its own that a query sees; None: all."""
        if self.causal:
            return 0
        return None if self.window is None else self.window // 2
