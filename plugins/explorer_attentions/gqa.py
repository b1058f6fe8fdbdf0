from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from explorer import CacheView, Lengths, Norm, Position, Visible, attend
from explorer_attentions.qk_norm import head_norm
from explorer_attentions.steps import (
    ACROSS,
    gated,
    in_heads,
    is_cross,
    out_of_heads,
    parted,
    rotates,
    rotation,
    rows,
    scores_bias,
    source,
)


class GroupedQueryAttention(nn.Module):
    """W_o softmax(cap(scale q k^T)) v with one key and value head for heads / kv_heads query heads.

    Ainslie et al. 2023, arXiv:2305.13245; kv_heads 1 is multi-query attention, Shazeer 2019, arXiv:1911.02150.
    One fused projection with the rows [gate | q of all heads | k | v]; a context is read through its part of it.

    scale: of the scores, null: 1 / sqrt(head_dim). `learned`: one parameter, which starts at sqrt(head_dim) and wants
        queries and keys of length 1 (qk_norm l2norm; Henry et al. 2020, arXiv:2010.04245).
    softcap: c tanh(s / c) of the scaled scores (Gemma 2).
    sinks: a learned logit of each head in the denominator of its softmax, at first 0 (gpt-oss).
    gate: sigmoid(W_g x) on each channel of the heads' outputs, before W_o (Qiu et al. 2025, arXiv:2505.06708).
    qk_norm: on q and k; the cache holds keys as normed and rotated.
    qk_norm_over: each head with one weight for all (Qwen 3), each head with a weight of its own (Cohere; a kernel a
        head), or all heads at once (OLMo 2).
    qk_norm_after_position: norms the rotated q and k (Llama 4); a gain then acts on other channels.
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
        scale: Annotated[float, Gt(0)] | Literal["learned"] | None = None,
        softcap: Annotated[float, Gt(0)] | None = None,
        sinks: bool = False,
        gate: bool = False,
        qk_norm: Norm | None = None,
        qk_norm_over: Literal["head", "each_head", "all"] = "head",
        qk_norm_after_position: bool = False,
    ):
        super().__init__()
        if heads % kv_heads:
            raise ValueError(f"heads {heads} must divide by kv_heads {kv_heads}")
        self.head_dim, self.width, self.kv_width = head_dim, heads * head_dim, kv_heads * head_dim
        self.gate_width = self.width if gate else 0
        self.qkv = nn.Linear(dim, self.gate_width + self.width + 2 * self.kv_width, bias=bias in (True, "qkv"))
        self.out = nn.Linear(self.width, dim, bias=bias in (True, "out"))
        self.q_norm, self.k_norm = (head_norm(qk_norm, qk_norm_over, n, head_dim) for n in (heads, kv_heads))
        self.position = (position(head_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions
        # q and k lie side by side, but a copy of their gradients goes with it that only a rotation is worth.
        self.rotates_both = rotates(self.position[0]) and (qk_norm is None or qk_norm_after_position)
        self.learned_scale = nn.Parameter(torch.tensor(head_dim**0.5)) if scale == "learned" else None
        self.scale = 1.0 if scale == "learned" else scale
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None
        self.visible, self.softcap, self.dropout = Visible(causal, window), softcap, dropout

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, cache: CacheView | None = None
    ) -> Tensor:
        if is_cross(context, cache):
            visible, bias = ACROSS, None
            gate, (q,) = parted(rows(self.qkv, x, 0, -2 * self.kv_width), self.gate_width, self.width)
            q = self.q_norm(in_heads(q, self.head_dim))
            k, v = source(self._keys_values, context, cache)
        else:
            visible = self.visible
            gate, q, k, v = self._own(x, cache)
            bias = scores_bias(self.position[0], q.shape[-2], k.shape[-2], cache)
        if self.learned_scale is not None:
            q = q * self.learned_scale
        y = attend(
            q, k, v, visible,
            mask=mask, bias=bias, scale=self.scale, softcap=self.softcap, sinks=self.sinks,
            dropout=self.dropout if self.training else 0.0,
        )  # fmt: skip
        return self.out(gated(out_of_heads(y), gate))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        return {"value": [self.qkv.weight[-self.kv_width :]], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """4 d h k FLOPs a token (6 d h k with a gate), 4 d g k a token read, 4 h k a pair."""
        dim = self.out.out_features
        token, read, pair = 2 * dim * (2 * self.width + self.gate_width), 4 * dim * self.kv_width, 4 * self.width
        return at.batch * (at.tokens * token + at.read * read + at.pairs * pair)

    def _own(self, x: Tensor, cache: CacheView | None) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """Self-attention's gate, normed and rotated q, all k and v so far."""
        rotate, qkv = rotation(self.position[0], x, cache), self.qkv(x)
        if self.rotates_both:
            gate, (qk, v) = parted(qkv, self.gate_width, self.width + self.kv_width, self.kv_width)
            qk = rotate(in_heads(qk, self.head_dim))  # (B, heads + kv_heads, T, head_dim)
            q, k = qk.tensor_split([self.width // self.head_dim], dim=1)
            q, k = self.q_norm(q), self.k_norm(k)
        else:
            gate, (q, k, v) = parted(qkv, self.gate_width, self.width, self.kv_width, self.kv_width)
            q, k = self.q_norm(in_heads(q, self.head_dim)), self.k_norm(in_heads(k, self.head_dim))
            q, k = rotate(q), rotate(k)
        v = in_heads(v, self.head_dim)
        if cache is not None:
            k, v = cache.extend(k=k, v=v, window=self.visible.window)
        return gate, q, k, v

    def _keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (in_heads(t, self.head_dim) for t in rows(self.qkv, context, -2 * self.kv_width, None).chunk(2, dim=-1))
        return self.k_norm(k), v
