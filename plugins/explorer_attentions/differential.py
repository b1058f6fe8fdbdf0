import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from explorer import CacheView, Lengths, Norm, Position, Site, Visible, attend
from explorer_attentions.steps import ACROSS, in_heads, is_cross, out_of_heads, rotation, rows, scores_bias, source


class DifferentialAttention(nn.Module):
    """W_o (1 - l_0) norm((softmax(s q_1 k_1^T) - l softmax(s q_2 k_2^T)) v), l = exp(a_1 b_1) - exp(a_2 b_2) + l_0.

    Ye et al. 2024, arXiv:2410.05258. The halves q_1, q_2 and k_1, k_2 of a head have head_dim / 2 channels each, v has
    head_dim; s = 1 / sqrt(head_dim / 2), l_0 = 0.8 - 0.6 exp(-0.3 layer) with layers counted from 0. One l serves all
    heads and is computed in float32; the vectors a and b start at N(0, 0.1^2). A position acts on the halves.
    Dropout falls on the weights of each softmax.

    Parameters are those of mha, norm's, and 2 head_dim for l. The paper's model has half the heads of its baseline,
    each twice as wide: this is for the blueprint to write, in `heads` and `head_dim`.

    norm: of each head's output, with one weight for all heads. The authors' eps is 1e-5, that of `rmsnorm` is 1e-6.
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
        site: Site,
        *,
        norm: Norm = "rmsnorm",  # type: ignore[assignment]  # as a blueprint writes it
    ):
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"head_dim {head_dim} must be even: queries and keys are split into halves")
        self.heads, self.head_dim, self.width = heads, head_dim, heads * head_dim
        self.qkv = nn.Linear(dim, 3 * self.width, bias=bias in (True, "qkv"))
        self.out = nn.Linear(self.width, dim, bias=bias in (True, "out"))
        self.lambda_q, self.lambda_k = (nn.Parameter(0.1 * torch.randn(2, head_dim // 2)) for _ in "qk")
        self.lambda_start = 0.8 - 0.6 * math.exp(-0.3 * site.layer)
        self.norm = norm(head_dim)
        self.visible, self.dropout = Visible(causal, window), dropout
        self.position = (position(head_dim // 2),)  # in a tuple: the stack's, not a submodule of each of its attentions

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, cache: CacheView | None = None
    ) -> Tensor:
        if is_cross(context, cache):
            visible, bias, q = ACROSS, None, self._halves(rows(self.qkv, x, 0, self.width))
            k, v = source(self._keys_values, context, cache)
        else:
            visible = self.visible
            q, k, v = self._own(x, cache)
            bias = scores_bias(self.position[0], q.shape[-2], k.shape[-2], cache)
        rate = self.dropout if self.training else 0.0
        first, second = (
            attend(q[:, i::2], k[:, i::2], v, visible, mask=mask, bias=bias, dropout=rate) for i in (0, 1)
        )  # (B, heads, T, head_dim)
        y = self.norm(first - self._lambda().to(x.dtype) * second) * (1 - self.lambda_start)
        return self.out(out_of_heads(y))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        # No value weights: the norm of each head's output takes any scale out again.
        return {"value": [], "input": [], "output": [self.out.weight]}

    def closed_form(self, at: Lengths) -> int:
        """4 d h k FLOPs a token, 4 d h k a token read; a pair 2 h (k / 2 + k) for each of the two softmaxes."""
        dim, pair = self.out.out_features, 6 * self.width
        return at.batch * (4 * dim * self.width * (at.tokens + at.read) + at.pairs * pair)

    def _lambda(self) -> Tensor:
        wide = torch.promote_types(self.lambda_q.dtype, torch.float32)
        first, second = (self.lambda_q.to(wide) * self.lambda_k.to(wide)).sum(dim=-1).exp().unbind()
        return first - second + self.lambda_start

    def _own(self, x: Tensor, cache: CacheView | None) -> tuple[Tensor, Tensor, Tensor]:
        """Self-attention's rotated q, all k and v so far."""
        qk, v = self.qkv(x).split([2 * self.width, self.width], dim=-1)
        qk = rotation(self.position[0], x, cache)(self._halves(qk))  # q and k lie side by side: one rotation
        q, k = qk.chunk(2, dim=1)  # (B, 2 heads, T, head_dim / 2)
        v = in_heads(v, self.head_dim)
        if cache is not None:
            k, v = cache.extend(k=k, v=v, window=self.visible.window)
        return q, k, v

    def _halves(self, heads: Tensor) -> Tensor:
        """(B, T, heads * head_dim) as (B, 2 heads, T, head_dim / 2): half i of head h is at 2 h + i."""
        return in_heads(heads, self.head_dim // 2)

    def _keys_values(self, context: Tensor) -> tuple[Tensor, Tensor]:
        k, v = rows(self.qkv, context, self.width, None).chunk(2, dim=-1)
        return self._halves(k), in_heads(v, self.head_dim)
