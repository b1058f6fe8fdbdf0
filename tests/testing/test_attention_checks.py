"""A small attention that keeps the contract, and ones that break one rule each: the check of that rule fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.testing import CHECKS


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
        places = torch.arange(S, device=q.device)
        distance = places[S - T :, None] - places  # of a key before its query
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


class FirstColumn(Fair):
    """Reads the first columns of padding as those of the new tokens, as if the cache held nothing."""

    def keep(self, q, k):
        self.new = q.shape[-2]
        return super().keep(q, k)

    def wanted(self, mask, S):
        return F.pad(mask[..., : self.new], (S - self.new, 0), value=True) if mask.shape[-2] == 1 else mask


class SaysPaddingOnly(Fair):
    """Takes any mask."""

    padding_only = "so it says"


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


BREAKS = [  # attention, the check that fails, what its message says
    (TrueMeansHidden, "mask_hides", "under a mask that hides it"),
    (IgnoresMask, "mask_hides", "under a mask that hides it"),
    (NanRows, "masked_out_row", "finite outputs"),
    (MeanOfAllValues, "masked_out_row", "the query sees none of them"),
    (FlatMasksOnly, "mask_broadcasts", "broadcast"),
    (IgnoresMask, "padding_hides", "of padding"),
    (SaysPaddingOnly, "padding_hides", "to be refused"),
    (FirstColumns, "cache_equals_full_pass_under_a_mask", "through the cache"),
    (FirstColumn, "cache_equals_full_pass_under_padding", "through the cache"),
    (TopLeft, "cache_equals_full_pass", "through the cache"),
    (NoTriangle, "hides_the_future", "to stay as they are when token 1 changes"),
    (NoTriangle, "causal_is_a_mask", "under a triangular mask"),
    (AlwaysCausal, "causal_is_a_mask", "the future stays hidden"),
    (AlwaysCausal, "window_hides", "outside the window of 2"),
    (AlwaysCausal, "centred_window_hides", "outside the centred window of 3"),
    (WindowOffByOne, "window_hides", "outside the window of 2"),
    (KeepsTooFew, "cache_equals_full_pass_in_a_window", "through the cache"),
    (StartsAgain, "cache_equals_full_pass", "through the cache"),
    (NeverDrops, "picked_dropout_acts", "in training"),
    (AlwaysDrops, "picked_dropout_acts", "in evaluation"),
    (OwnsPosition, "stays_with_the_stack", "mine"),
    (ForgetsSource, "crosses", "to see token 1 of its context"),
]


@pytest.mark.parametrize(("attention", "check", "message"), BREAKS)
def test_a_broken_attention_fails_its_check(fails: Any, attention: Any, check: str, message: str) -> None:
    fails("attention", attention, check, message)


def test_every_check_of_attentions_alone_is_seen_to_fail() -> None:
    own = {check.name for check in CHECKS["attention"]} - {check.name for check in CHECKS["residual"]}
    assert own <= {check for _, check, _ in BREAKS}


def test_a_fair_attention_keeps_the_contract(cases: Any) -> None:
    for case in cases({"attention": {"fair": Fair}}):
        # That compiling is checked is seen over the installed components; here it would take half a minute.
        if not case.slow and "compiles" not in str(case):
            case.check()
