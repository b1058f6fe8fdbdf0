from collections.abc import Callable

import torch
from torch import Tensor, nn

from explorer import CacheView, Lengths, Position, index_scores
from explorer_attentions.compression import Compressor, entry_pairs
from explorer_attentions.selected import RawAndCompressed
from explorer_attentions.steps import in_heads


class Indexer(nn.Module):
    """The top_k entries s with the largest sum_h w_h relu(q_h k_s / sqrt(width)): which ones a query attends to.

    DeepSeek-AI 2026, arXiv:2606.19348, section 2.3.1 (DeepSeek-V3.2's lightning indexer over compressed keys): `heads`
    small queries from the latent, keys from an overlapping compressor of their own, weights w from x. The products run
    in the dtype of x, the sum over heads in float32. Every query scores every entry, those it must not see too, and
    also where there are no more than top_k; the exact count has those that it may see. Of equal scores the newest
    entries are chosen, whatever the number of entries: the same with a cache and without.

    A choice has no gradient: none of this is trained by the loss of the model.
    """

    def __init__(
        self, dim: int, latent: int, position: Callable[[int], Position], heads: int, width: int, ratio: int, top_k: int
    ):
        super().__init__()
        self.heads, self.width, self.top_k = heads, width, top_k
        self.query = nn.Linear(latent, heads * width, bias=False)
        self.weight = nn.Linear(dim, heads, bias=False)
        self.compressor = Compressor(dim, width, ratio, position, overlap=True)
        self.position = (position(width),)  # in a tuple: the stack's, not a submodule of each of its attentions

    @torch.no_grad()
    def forward(
        self, x: Tensor, latent: Tensor, rule: RawAndCompressed, mask: Tensor | None, cache: CacheView | None
    ) -> Tensor:
        """x (B, T, dim), latent (B, T, latent) -> indices (B, T, min(top_k, E)) of entries, in no order.

        Of the E entries those come last that `rule` hides or `mask` does, bool, broadcastable to (B, T, E). A query
        that sees less than top_k gets some of them.
        """
        keys = self.compressor(x, "index", cache)
        if cache is not None:
            (keys,) = cache.extend(index=keys, every=self.compressor.ratio)  # (B, 1, E, width)
        offset, T = 0 if cache is None else cache.offset, x.shape[1]
        q = in_heads(self.query(latent), self.width)
        # Scaled first: float16 products would overflow. The scale over heads changes no order.
        q = self.position[0].rotate(q, torch.arange(offset, offset + T, device=x.device)) * self.width**-0.5
        scores = index_scores(q, keys, self.weight(x), rule)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return newest_of_the_best(scores, min(self.top_k, keys.shape[-2]))

    def flops(self, at: Lengths) -> int:
        """Of one sequence: 2 h (q w + d) FLOPs a token, those of the compressor, 2 h (w + 1) for each query and entry.

        h queries of width w; q: width of what they come from.
        """
        token = 2 * self.heads * (self.query.in_features * self.width + self.weight.in_features)
        # No choice is made yet, so a single query too is scored with all entries.
        entries = at.context // self.compressor.ratio
        pairs = entry_pairs(at, self.compressor.ratio) if at.exact else at.tokens * entries
        return at.tokens * (token + self.compressor.flops_per_token()) + 2 * self.heads * (self.width + 1) * pairs


def newest_of_the_best(scores: Tensor, count: int) -> Tensor:
    """Where the `count` largest of float32 scores (..., E) stand; of equal ones the last.

    `topk` leaves open which of equal scores it takes, and takes others of another E. They do occur: a score is exactly
    0 where all heads are. So it chooses among integers, a score in the high bits and its place in the low ones: no
    slower, where a stable sort takes several times as long. (transformers leaves it to topk: other choices at 0.)
    """
    bits = (scores + 0.0).view(torch.int32)  # 0.0: of -0 and 0 one
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the scores, negative ones too
    places = torch.arange(scores.shape[-1], device=scores.device)
    return ((ordered.to(torch.int64) << 32) | places).topk(count, dim=-1, sorted=False).indices
