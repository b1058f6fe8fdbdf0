"""Which raw keys and which compressed entries a query sees, and what masks and biases over tokens say of both."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from explorer import UsageError, Visible


@dataclass(frozen=True)
class RawAndCompressed:
    """The rule for `attend` over raw keys and, behind them, `entries` compressed ones of `ratio` tokens each.

    A query at place p (the first one at `offset`) sees the raw keys that `raw` shows it and the entries whose tokens
    are all there: (p + 1) // ratio of them. top_k: at most so many, those that `chosen` names, bool (B, T, entries);
    the number of pairs follows without it, for every query has chosen as many as it could.
    """

    raw: Visible
    ratio: int
    offset: int
    entries: int
    top_k: int | None = None
    chosen: Tensor | None = field(default=None, compare=False, repr=False)

    def pairs(self, T: int, S: int) -> int:
        """Number of visible (query, key) pairs of one head; S counts raw keys and entries."""
        most = self.entries if self.top_k is None else min(self.top_k, self.entries)
        last = self.offset + T
        complete = _complete_up_to(last, self.ratio, most) - _complete_up_to(self.offset, self.ratio, most)
        return self.raw.pairs(T, S - self.entries) + complete

    def mask(self, T: int, S: int, device: torch.device | str | None = None) -> Tensor:
        """Bool, (T, S) or where entries were chosen (B, 1, T, S), True = may attend."""
        raw, seen = self.raw.mask(T, S - self.entries, device), self.complete(T, device)
        if self.chosen is not None:
            seen = (seen & self.chosen).unsqueeze(1)
            raw = raw.expand(seen.shape[0], 1, -1, -1)
        return torch.cat([raw, seen], dim=-1)

    def complete(self, T: int, device: torch.device | str | None = None) -> Tensor:
        """Bool (T, entries): whether all tokens of an entry are there, the query's own included."""
        known = torch.arange(self.offset + 1, self.offset + T + 1, device=device).unsqueeze(1)
        ends = self.ratio * torch.arange(1, self.entries + 1, device=device)
        return ends <= known

    def choosing(self, index: Tensor, top_k: int) -> "RawAndCompressed":
        """The same with the entries that each query chose, `index` (B, T, n); what it must not see stays hidden."""
        B, T, _ = index.shape
        chosen = torch.zeros(B, T, self.entries, dtype=torch.bool, device=index.device).scatter_(-1, index, True)
        return RawAndCompressed(self.raw, self.ratio, self.offset, self.entries, top_k, chosen)

    def everything(self, T: int, S: int) -> bool:
        """Whether every query sees every key, so that no mask is needed."""
        if self.chosen is not None or (self.offset + 1) // self.ratio < self.entries:
            return False
        return self.raw.everything(T, S - self.entries)

    def sdpa_causal(self, T: int, S: int) -> bool:
        """Whether SDPA's `is_causal=True` means the same."""
        return self.entries == 0 and self.raw.sdpa_causal(T, S)


def _complete_up_to(n: int, ratio: int, most: int) -> int:
    """Sum over m in 1..n of min(m // ratio, most), in closed form."""
    if n >= ratio * most:
        return ratio * (most * (most - 1) // 2) + (n - ratio * most + 1) * most
    whole, rest = divmod(n, ratio)
    return ratio * (whole * (whole - 1) // 2) + (rest + 1) * whole


@dataclass(frozen=True)
class Columns:
    """Turns what a mask or a bias says of `tokens` tokens into what it says of the last `raw` and of all entries.

    Both come as any tensor that broadcasts to (B, heads, T, tokens), the last columns of a longer one, and leave with
    four axes and raw + entries columns. reach: windows that one entry pools.
    """

    tokens: int
    raw: int
    entries: int
    ratio: int
    reach: int

    def mask(self, mask: Tensor) -> Tensor:
        """An entry may be seen where all tokens that it pools may be: what is hidden does not come in by it."""
        mask = self._over_tokens(mask)
        whole = mask[..., : self.entries * self.ratio].unflatten(-1, (self.entries, self.ratio)).all(dim=-1)
        if self.reach > 1:
            whole = whole & F.pad(whole, (1, 0), value=True)[..., :-1]
        return torch.cat([mask[..., self.tokens - self.raw :], whole], dim=-1)

    def bias(self, bias: Tensor) -> Tensor:
        """An entry stands at its window's first token."""
        bias = self._over_tokens(bias)
        return torch.cat(
            [bias[..., self.tokens - self.raw :], bias[..., : self.entries * self.ratio : self.ratio]], dim=-1
        )

    def _over_tokens(self, given: Tensor) -> Tensor:
        given = given[(None,) * (4 - given.ndim)]
        if given.shape[-1] == 1:
            return given.expand(-1, -1, -1, self.tokens)
        if given.shape[-1] < self.tokens:
            raise UsageError(
                f"a mask over {given.shape[-1]} keys does not say which of {self.tokens} tokens are in an entry"
            )
        return given[..., given.shape[-1] - self.tokens :]


def picked(columns: Tensor | None, raw: int, index: Tensor) -> Tensor | None:
    """The raw columns and, of the entries' columns behind them, those of `index` (B, 1, k): (B, heads, 1, raw + k)."""
    if columns is None:
        return None
    columns = columns.expand(index.shape[0], -1, -1, -1)
    index = index.unsqueeze(1).expand(-1, columns.shape[1], -1, -1)
    return torch.cat([columns[..., :raw], columns[..., raw:].gather(-1, index)], dim=-1)
