from collections.abc import Callable

import torch
from torch import Tensor, nn

from explorer import CacheView, Lengths, Position


class Compressor(nn.Module):
    """c_i = rotate(norm(sum_j softmax_j(z_j + b_j) v_j)), [v | z] = W x: one entry for every `ratio` tokens.

    DeepSeek-AI 2026, arXiv:2606.19348, sections 2.3.1 and 2.3.2. The softmax is over the tokens j of window i, for each
    channel by itself and in float32; b is learned, one for each place in a window. The entry stands where its window
    starts.

    overlap: each token has two series, and entry i pools the first one of window i - 1 with the second one of window i:
    2 ratio tokens wide, stride ratio. Entry 0 has only its own window.

    A window whose tokens are not all there has no entry yet. With a cache its tokens wait in a state of constant size,
    next to those of the window before where windows overlap.
    """

    def __init__(self, dim: int, width: int, ratio: int, position: Callable[[int], Position], *, overlap: bool):
        super().__init__()
        self.width, self.ratio, self.series = width, ratio, 2 if overlap else 1
        self.project = nn.Linear(dim, 2 * self.series * width, bias=False)
        self.bias = nn.Parameter(torch.zeros(ratio, self.series * width))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.position = (position(width),)  # in a tuple: the stack's, not a submodule of each of its attentions

    def forward(self, x: Tensor, name: str, cache: CacheView | None = None) -> Tensor:
        """x (B, T, dim) -> (B, 1, n, width): the n entries that these tokens complete. name: of the state."""
        tokens = self.project(x)  # (B, T, 2 series width)
        if cache is not None:
            return self._continued(tokens, name, cache)
        return self._pooled(tokens[:, : tokens.shape[1] // self.ratio * self.ratio], None, 0)

    def flops_per_token(self) -> int:
        """4 d w of each series: values and gates, for a series of width w."""
        return 2 * self.project.in_features * 2 * self.series * self.width

    def _continued(self, new: Tensor, name: str, cache: CacheView) -> Tensor:
        """The entries that the tokens (B, T, 2 series width) complete; the last ones go into the state.

        Of a single token, all that depends on its place is the values of an index and whether it completes an entry: a
        compiler needs two graphs for all steps. A view of the state would be of another shape or begin for each place.
        """
        T, offset, size = new.shape[1], cache.offset, self.series * self.ratio
        if T == 0:
            return self._none(new)
        state = cache.state(name, lambda: self._nothing(new, size))  # token i at i % size
        waiting = offset % self.ratio
        if waiting + T < self.ratio:
            entries = self._none(new)
        else:
            waiting = waiting if T > 1 else self.ratio - 1
            held = state.index_select(1, torch.arange(offset, offset + size, device=new.device) % size)  # in order
            tokens = torch.cat([held[:, size - waiting :], new], dim=1)[:, : (waiting + T) // self.ratio * self.ratio]
            before = held[:, size - waiting - self.ratio : size - waiting] if self.series > 1 else None
            entries = self._pooled(tokens, before, offset // self.ratio)
        last = new[:, max(T - size, 0) :]
        state.index_copy_(1, torch.arange(offset + T - last.shape[1], offset + T, device=new.device) % size, last)
        return entries

    def _nothing(self, new: Tensor, size: int) -> Tensor:
        """Tokens before the first one: nothing of them has weight."""
        values, gates = new.new_zeros(new.shape[0], size, new.shape[2]).chunk(2, dim=-1)
        return torch.cat([values, gates.fill_(float("-inf"))], dim=-1)

    def _none(self, new: Tensor) -> Tensor:
        return new.new_empty(new.shape[0], 1, 0, self.width)

    def _pooled(self, tokens: Tensor, before: Tensor | None, first: int) -> Tensor:
        """Whole windows (B, n ratio, 2 series width), the first one of them number `first` -> (B, 1, n, width)."""
        count = tokens.shape[1] // self.ratio
        values, gates = tokens.unflatten(1, (count, self.ratio)).chunk(2, dim=-1)  # (B, n, ratio, series width)
        bias: Tensor = self.bias
        if self.series > 1:
            value, gate = (None, None) if before is None else before.chunk(2, dim=-1)
            values, gates = _beside(values, value, 0.0), _beside(gates, gate, float("-inf"))
            bias = torch.cat(bias.chunk(2, dim=-1))
        wide = torch.promote_types(gates.dtype, torch.float32)
        weights = (gates.to(wide) + bias.to(wide)).softmax(dim=2).to(values.dtype)
        pooled = self.norm((values * weights).sum(dim=2))  # (B, n, width)
        starts = self.ratio * torch.arange(first, first + count, device=tokens.device)
        return self.position[0].rotate(pooled.unsqueeze(1), starts)


def entry_pairs(at: Lengths, ratio: int, top_k: int | None = None) -> int:
    """Pairs of a query and an entry, of one head: the query at place p sees (p + 1) // ratio entries, `top_k` at most.

    All pairs: several queries meet all entries, also where they choose top_k; a single one meets those alone.
    """
    entries = at.context // ratio
    most = entries if top_k is None else min(top_k, entries)
    if not at.exact:
        return at.tokens * (most if at.tokens == 1 else entries)
    return sum(min((place + 1) // ratio, most) for place in range(at.offset, at.context))


def _beside(series: Tensor, before: Tensor | None, nothing: float) -> Tensor:
    """The first series of each window's predecessor beside its own second one: (B, n, r, 2 w) -> (B, n, 2 r, w).

    before (B, r, 2 w): the window that precedes them; None: there is none, and `nothing` stands there.
    """
    first, second = series.chunk(2, dim=-1)
    B, count, ratio, width = first.shape
    head = first.new_full((B, 1, ratio, width), nothing) if before is None else before[:, None, :, :width]
    return torch.cat([torch.cat([head, first], dim=1)[:, :count], second], dim=2)
