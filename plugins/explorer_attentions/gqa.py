from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor, nn

from explorer import CacheView, Norm, Position, Visible, attend
from explorer_attentions.steps import ACROSS, in_heads, is_cross, placed, source


class GroupedQueryAttention(nn.Module):
    """W_o softmax(cap(scale q k^T)) v with one key and value head for heads / kv_heads query heads.

    Ainslie et al. 2023, arXiv:2305.13245; kv_heads 1 is multi-query attention, Shazeer 2019, arXiv:1911.02150.
    One fused projection with the rows [q of all heads | k | v]; keys and values of a context use their part of it.

    scale: of the scores, 1 / sqrt(head_dim) when off. softcap: c tanh(s / c) of the scaled scores (Gemma 2).
    qk_norm: on q and k before the rotation; over each head with one weight for all, or over all heads at once (OLMo 2).
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        causal: bool,
        window: int | None,
        bias: bool | Literal["qkv", "out"],
        position: Callable[[int], Position],
        dropout: float,
        *,
        kv_heads: Annotated[int, Ge(1)],
        scale: Annotated[float, Gt(0)] | None = None,
        softcap: Annotated[float, Gt(0)] | None = None,
        qk_norm: Norm | None = None,
        qk_norm_over: Literal["head", "all"] = "head",
    ):
        super().__init__()
        if heads % kv_heads:
            raise ValueError(f"heads {heads} must divide by kv_heads {kv_heads}")
        self.head_dim, self.q_width, self.kv_width = head_dim, heads * head_dim, kv_heads * head_dim
        self.qkv = nn.Linear(dim, self.q_width + 2 * self.kv_width, bias=bias in (True, "qkv"))
        self.out = nn.Linear(self.q_width, dim, bias=bias in (True, "out"))
        self.normed = (head_dim, head_dim) if qk_norm_over == "head" else (self.q_width, self.kv_width)
        self.q_norm, self.k_norm = (qk_norm(width) if qk_norm else nn.Identity() for width in self.normed)
        self.visible, self.softcap, self.dropout = Visible(causal, window), softcap, dropout
        self.scale = head_dim**-0.5 if scale is None else scale
        self.position = (position(head_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, cache: CacheView | None = None
    ) -> Tensor:
        if is_cross(context, cache):
            visible, bias, q = ACROSS, None, self._queries(self._rows(x, 0, self.q_width))
            k, v = source(lambda c: self._keys_values(self._rows(c, self.q_width, None)), context, cache)
        else:
            q, kv = self.qkv(x).split([self.q_width, 2 * self.kv_width], dim=-1)
            q, (k, v), visible = self._queries(q), self._keys_values(kv), self.visible
            q, k, v, bias = placed(q, k, v, self.position[0], visible.window, cache)
        rate = self.dropout if self.training else 0.0
        y = attend(q, k, v, visible, mask=mask, bias=bias, scale=self.scale, softcap=self.softcap, dropout=rate)
        return self.out(y.transpose(1, 2).flatten(2))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        return {"value": [self.qkv.weight[-self.kv_width :]], "input": [], "output": [self.out.weight]}

    def _rows(self, x: Tensor, first: int, last: int | None) -> Tensor:
        bias = None if self.qkv.bias is None else self.qkv.bias[first:last]
        return F.linear(x, self.qkv.weight[first:last], bias)

    def _queries(self, q: Tensor) -> Tensor:
        return in_heads(self.q_norm(q.unflatten(-1, (-1, self.normed[0]))), self.head_dim)

    def _keys_values(self, kv: Tensor) -> tuple[Tensor, Tensor]:
        k, v = kv.chunk(2, dim=-1)
        k = self.k_norm(k.unflatten(-1, (-1, self.normed[1])))
        return in_heads(k, self.head_dim), in_heads(v, self.head_dim)
