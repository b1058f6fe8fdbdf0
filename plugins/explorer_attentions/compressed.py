"""Attention over a window of raw keys and over compressed ones: what `csa` and `hca` share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import CacheView, Lengths, Position, Visible, attend
from explorer_attentions.compression import Compressor, entry_pairs
from explorer_attentions.grouped_output import GroupedOutput
from explorer_attentions.indexer import Indexer
from explorer_attentions.selected import Columns, RawAndCompressed, picked
from explorer_attentions.steps import in_heads

_EPS = 1e-6
_UNTRAINED = "it chooses compressed entries, and a choice has no gradient"


@dataclass(frozen=True)
class Seen:
    """What the queries of one call look at: keys (B, 1, S, head_dim), the rule for them, mask and bias over them."""

    keys: Tensor
    visible: Visible | RawAndCompressed
    mask: Tensor | None
    bias: Tensor | None


class CompressedAttention(nn.Module):
    """W_o R^-1 softmax(q k^T / sqrt(head_dim)) k over [raw k of the window | compressed entries], one key head for all.

    DeepSeek-AI 2026, arXiv:2606.19348. A key is its own value: [latent | k] = W x, q = W_q norm(latent), each head of q
    and the one k normed (q without a gain) and rotated by R. What a rotation put into the values, the inverse rotation
    at the query's place takes out of the output again. No linear map has a bias.

    A mask speaks of tokens: it hides an entry where it hides any token that the entry pools.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        window: int | None,
        position: Callable[[int], Position],
        dropout: float,
        *,
        compressor: Compressor | None,
        indexer: Indexer | None,
        q_rank: int | None,
        out_groups: int | None,
        out_rank: int,
        sinks: bool,
    ):
        super().__init__()
        self.head_dim, self.q_rank = head_dim, q_rank
        self.down = nn.Linear(dim, (q_rank or heads * head_dim) + head_dim, bias=False)
        self.q_norm = nn.RMSNorm(q_rank, eps=_EPS) if q_rank else nn.Identity()
        self.q_up = nn.Linear(q_rank, heads * head_dim, bias=False) if q_rank else nn.Identity()
        self.k_norm = nn.RMSNorm(head_dim, eps=_EPS)
        self.compressor, self.indexer = compressor, indexer
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None
        self.out = GroupedOutput(dim, heads, head_dim, out_groups, out_rank)
        self.visible, self.dropout = Visible(True, window), dropout
        self.position = (position(head_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions
        self.idle_parameters = {} if indexer is None else {"indexer": _UNTRAINED}
        if compressor is not None:
            self.beyond_window = "the compressed entries of all tokens so far"

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: CacheView | None = None) -> Tensor:
        offset, position = 0 if cache is None else cache.offset, self.position[0]
        places = torch.arange(offset, offset + x.shape[1], device=x.device)
        latent, q, k = self._projected(x)
        q, k = position.rotate(q, places), position.rotate(k, places)
        if cache is not None:
            (k,) = cache.extend(k=k, window=self.visible.window)
        seen = self._seen(x, latent, k, mask, cache)
        y = attend(
            q, seen.keys, seen.keys, seen.visible,
            mask=seen.mask, bias=seen.bias, sinks=self.sinks, dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.out(position.rotate(y, -places))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        # No value weights: the norm behind the projection of k takes any scale out again.
        return {"value": [], "input": [], "output": [self.out.up.weight]}

    def closed_form(self, at: Lengths) -> int:
        """2 d (q + k) FLOPs a token (a latent of q: 2 q h k more), W_o, compressor and indexer, and 4 h k a pair.

        A pair is that of a query with a raw key or an entry.
        """
        dim, width, rank = self.out.up.out_features, self.out.width, self.q_rank
        token = 2 * dim * ((rank or width) + self.head_dim) + 2 * (rank or 0) * width + self.out.flops_per_token()
        pairs, choosing = at.pairs, 0
        if self.compressor is not None:
            token += self.compressor.flops_per_token()
            pairs += entry_pairs(at, self.compressor.ratio, None if self.indexer is None else self.indexer.top_k)
        if self.indexer is not None and not at.backward:  # nothing of it has a gradient
            choosing = self.indexer.flops(at)
        return at.batch * (at.tokens * token + 4 * width * pairs + choosing)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What q comes from, (B, T, q_rank or dim); normed q (B, heads, T, head_dim) and k (B, 1, T, head_dim)."""
        q, k = self.down(x).tensor_split([-self.head_dim], dim=-1)
        latent = self.q_norm(q)
        q = in_heads(self.q_up(latent), self.head_dim)
        q = F.rms_norm(q, (self.head_dim,), None, _EPS)
        return latent if self.q_rank else x, q, self.k_norm(k).unsqueeze(1)

    def _seen(self, x: Tensor, latent: Tensor, k: Tensor, mask: Tensor | None, cache: CacheView | None) -> Seen:
        offset, T, raw = 0 if cache is None else cache.offset, x.shape[1], k.shape[-2]
        position, compressor = self.position[0], self.compressor
        if compressor is None:
            return Seen(k, self.visible, mask, position.bias(T, raw, offset))
        entries = compressor(x, "entries", cache)
        if cache is not None:
            (entries,) = cache.extend(entries=entries, every=compressor.ratio)  # (B, 1, E, head_dim)
        columns = Columns(offset + T, raw, entries.shape[-2], compressor.ratio, compressor.series)
        bias = position.bias(T, offset + T, offset)
        mask, bias = None if mask is None else columns.mask(mask), None if bias is None else columns.bias(bias)
        rule = RawAndCompressed(self.visible, compressor.ratio, offset, entries.shape[-2])
        if self.indexer is None:
            return Seen(torch.cat([k, entries], dim=-2), rule, mask, bias)
        index = self.indexer(x, latent, rule, None if mask is None else mask[..., raw:].any(dim=1), cache)
        if T == 1:
            return _gathered(k, entries, index, rule, mask, bias)
        return Seen(torch.cat([k, entries], dim=-2), rule.choosing(index, self.indexer.top_k), mask, bias)


def _gathered(
    k: Tensor, entries: Tensor, index: Tensor, rule: RawAndCompressed, mask: Tensor | None, bias: Tensor | None
) -> Seen:
    """One query reads the entries of `index` (B, 1, n) and no others: a long text is not copied for each new token."""
    chosen = entries.gather(-2, index.unsqueeze(-1).expand(-1, -1, -1, entries.shape[-1]))  # (B, 1, n, head_dim)
    raw = k.shape[-2]
    alone = RawAndCompressed(rule.raw, rule.ratio, rule.offset, index.shape[-1])
    return Seen(torch.cat([k, chosen], dim=-2), alone, picked(mask, raw, index), picked(bias, raw, index))
