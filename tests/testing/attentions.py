"""A small attention that keeps the contract, and ones that break one rule each."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def everything(q: Tensor, k: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)


class Fair(nn.Module):
    """Softmax attention, one projection for q, k and v, written out."""

    def __init__(self, dim, heads, head_dim, causal, window, bias, position, dropout):
        super().__init__()
        self.heads, self.causal, self.window, self.rate = heads, causal, window, dropout
        self.qkv = nn.Linear(dim, 3 * heads * head_dim, bias=bias in (True, "qkv"))
        self.out = nn.Linear(heads * head_dim, dim, bias=bias in (True, "out"))
        self.position = (position(head_dim),)

    def forward(self, x: Tensor, context=None, mask=None, cache=None) -> Tensor:
        crosses = context is not None or (cache is not None and cache.holds_source)
        q, k, v = self.projected(x)
        if crosses:
            k, v = self.source(context, cache)
        else:
            q, k, v = self.placed(q, k, v, cache)
        keep = everything(q, k) if crosses else self.keep(q, k)
        if mask is not None:
            keep = keep & self.wanted(mask, k.shape[-2])
        weights = self.weights((q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5, keep)
        y = self.dropped(weights) @ v  # (B, heads, T, head_dim)
        return self.out(y.transpose(1, 2).flatten(2))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return q, k, v

    def source(self, context, cache):
        return self.projected(context)[1:] if cache is None else cache.once(lambda: self.projected(context)[1:])

    def placed(self, q, k, v, cache):
        offset = 0 if cache is None else cache.offset
        places = torch.arange(offset, offset + q.shape[-2], device=q.device)
        q, k = self.position[0].rotate(q, places), self.position[0].rotate(k, places)
        return (q, k, v) if cache is None else (q, *cache.extend(k=k, v=v, window=self.window))

    def keep(self, q: Tensor, k: Tensor) -> Tensor:
        T, S = q.shape[-2], k.shape[-2]
        distance = torch.arange(S - T, S, device=q.device)[:, None] - torch.arange(S, device=q.device)  # of a key before its query
        after, window = (0, self.window) if self.causal else (T, self.window)
        if window is None:
            return distance >= -after
        before, after = (window - 1, 0) if self.causal else ((window - 1) // 2, window // 2)
        return (distance <= before) & (distance >= -after)

    def wanted(self, mask: Tensor, S: int) -> Tensor:
        return mask[..., -S:] if mask.shape[-1] > S else mask

    def weights(self, scores: Tensor, keep: Tensor) -> Tensor:
        hidden = torch.finfo(scores.dtype).min
        return torch.softmax(scores.masked_fill(~keep, hidden), dim=-1).masked_fill(~keep, 0.0)

    def dropped(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.rate, self.training)


class TrueMeansHidden(Fair):
    def wanted(self, mask, S):
        return ~super().wanted(mask, S)


class NanRows(Fair):
    def weights(self, scores, keep):
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)


class MeanOfAllValues(Fair):
    def weights(self, scores, keep):
        return torch.softmax(scores.masked_fill(~keep, torch.finfo(scores.dtype).min), dim=-1)


class IgnoresMask(Fair):
    def wanted(self, mask, S):
        return torch.ones_like(super().wanted(mask, S))


class FlatMasksOnly(Fair):
    def wanted(self, mask, S):
        return super().wanted(mask, S).reshape(-1, S)


class FirstColumns(Fair):
    """Takes the first S columns of a longer mask."""

    def wanted(self, mask, S):
        return mask[..., :S]


class TopLeft(Fair):
    """Aligns the causal triangle top-left, as SDPA's is_causal does."""

    def keep(self, q, k):
        return everything(q, k).tril()


class NoTriangle(Fair):
    def keep(self, q, k):
        return everything(q, k)


class AlwaysCausal(Fair):
    def keep(self, q, k):
        T, S = q.shape[-2], k.shape[-2]
        return everything(q, k).tril(S - T)


class WindowOffByOne(Fair):
    def keep(self, q, k):
        T, S = q.shape[-2], k.shape[-2]
        wide = everything(q, k).tril(S - T)
        return wide if self.window is None else wide.triu(S - T - self.window)


class KeepsTooFew(Fair):
    """Keeps one key less than its window."""

    def placed(self, q, k, v, cache):
        offset = 0 if cache is None else cache.offset
        places = torch.arange(offset, offset + q.shape[-2], device=q.device)
        q, k = self.position[0].rotate(q, places), self.position[0].rotate(k, places)
        if cache is None:
            return q, k, v
        return (q, *cache.extend(k=k, v=v, window=None if self.window is None else self.window - 1))


class StartsAgain(Fair):
    """Counts places from 0 in each call."""

    def placed(self, q, k, v, cache):
        places = torch.arange(q.shape[-2], device=q.device)
        q, k = self.position[0].rotate(q, places), self.position[0].rotate(k, places)
        return (q, k, v) if cache is None else (q, *cache.extend(k=k, v=v, window=self.window))


class NeverDrops(Fair):
    def dropped(self, weights):
        return weights


class AlwaysDrops(Fair):
    def dropped(self, weights):
        return F.dropout(weights, self.rate, True)


class OwnsPosition(Fair):
    def __init__(self, dim, heads, head_dim, causal, window, bias, position, dropout):
        super().__init__(dim, heads, head_dim, causal, window, bias, position, dropout)
        self.mine = position(head_dim)


class ForgetsSource(Fair):
    """Cross-attention that reads nothing but the first token of its source."""

    def source(self, context, cache):
        k, v = super().source(context, cache)
        return k[..., :1, :], v[..., :1, :]
