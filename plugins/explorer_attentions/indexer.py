from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import CacheView, Position
from explorer_attentions.compression import Compressor


class Indexer(nn.Module):
    """The top_k entries s with the largest sum_h w_h relu(q_h k_s / sqrt(width)): which ones a query attends to.

    DeepSeek-AI 2026, arXiv:2606.19348, section 2.3.1 (DeepSeek-V3.2's lightning indexer over compressed keys): `heads`
    small queries from the latent, keys from an overlapping compressor of their own, weights w from x. The products run
    in the dtype of x, the sum over heads in float32. Every query scores every entry, those it must not see too, and
    also where there are no more than top_k: these are ordinary matrix products, and counted as such.

    A choice has no gradient: none of this is trained by the loss of the model.
    """

    def __init__(
        self,
        dim: int,
        latent: int,
        position: Callable[[int], Position],
        *,
        heads: int,
        width: int,
        ratio: int,
        top_k: int,
    ):
        super().__init__()
        self.heads, self.width, self.top_k = heads, width, top_k
        self.query = nn.Linear(latent, heads * width, bias=False)
        self.weight = nn.Linear(dim, heads, bias=False)
        self.compressor = Compressor(dim, width, ratio, position, overlap=True)
        self.position = (position(width),)  # in a tuple: the stack's, not a submodule of each of its attentions

    @torch.no_grad()
    def forward(self, x: Tensor, latent: Tensor, allowed: Tensor | None, cache: CacheView | None) -> Tensor:
        """x (B, T, dim), latent (B, T, latent) -> indices (B, T, min(top_k, E)) of entries, in no order.

        allowed: bool, broadcastable to (B, T, E); others come last. A query with less than top_k of them gets others.
        """
        keys = self.compressor(x, "index", cache)
        if cache is not None:
            (keys,) = cache.extend(index=keys, every=self.compressor.ratio)
        keys = keys.squeeze(1)  # (B, E, width)
        scores = self._scores(x, latent, keys, 0 if cache is None else cache.offset)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, float("-inf"))
        return scores.topk(min(self.top_k, keys.shape[1]), dim=-1, sorted=False).indices

    def _scores(self, x: Tensor, latent: Tensor, keys: Tensor, offset: int) -> Tensor:
        """(B, T, E), in float32."""
        B, T, _ = x.shape
        places = torch.arange(offset, offset + T, device=x.device)
        q = self.query(latent).view(B, T, self.heads, self.width).transpose(1, 2)
        # Scaled first: float16 products would overflow. The scale over heads changes no order.
        q = self.position[0].rotate(q, places) * self.width**-0.5  # (B, heads, T, width)
        products = F.relu(q.transpose(1, 2).reshape(B, T * self.heads, self.width) @ keys.transpose(1, 2))
        products = products.view(B, T, self.heads, -1)
        wide = torch.promote_types(x.dtype, torch.float32)
        return (self.weight(x).to(wide).unsqueeze(2) @ products.to(wide)).squeeze(2)
