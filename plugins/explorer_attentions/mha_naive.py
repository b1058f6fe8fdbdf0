from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from explorer import CacheView, Lengths, Position, Visible, attend
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.steps import ACROSS, is_cross, rotation, scores_bias, source


class NaiveMultiHeadAttention(nn.Module):
    """W_o [head_1 ... head_h], head_i = softmax(q_i k_i^T / sqrt(head_dim)) v_i. Vaswani et al. 2017, arXiv:1706.03762.

    Written as in the paper, head by head: 3 h small projections and h attentions, one after the other. The parameters,
    FLOPs and results of `mha`; what differs is the number of kernels.
    """

    same_as: ClassVar[str] = "mha"

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
    ):
        super().__init__()
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(dim, head_dim, bias=bias in (True, "qkv")) for _ in range(heads)) for _ in "qkv"
        )
        self.out = nn.Linear(heads * head_dim, dim, bias=bias in (True, "out"))
        self.visible, self.dropout = Visible(causal, window), dropout
        self.position = (position(head_dim),)  # in a tuple: the stack's, not a submodule of each of its attentions

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None, cache: CacheView | None = None
    ) -> Tensor:
        q = _each(self.q, x)
        if is_cross(context, cache):
            visible, bias = ACROSS, None
            k, v = source(lambda c: (_each(self.k, c), _each(self.v, c)), context, cache)
        else:
            visible, rotate = self.visible, rotation(self.position[0], x, cache)
            q, k, v = rotate(q), rotate(_each(self.k, x)), _each(self.v, x)
            if cache is not None:
                k, v = cache.extend(k=k, v=v, window=visible.window)
            bias = scores_bias(self.position[0], q.shape[-2], k.shape[-2], cache)
        rate = self.dropout if self.training else 0.0
        heads = [
            attend(q[:, i], k[:, i], v[:, i], visible, mask=_of(mask, i), bias=_of(bias, i), dropout=rate)
            for i in (slice(head, head + 1) for head in range(q.shape[1]))
        ]  # each (B, 1, T, head_dim)
        return self.out(torch.cat(heads, dim=-1).squeeze(1))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        return {"value": [value.get_parameter("weight") for value in self.v], "input": [], "output": [self.out.weight]}

    @torch.no_grad()
    def load_from(self, other: GroupedQueryAttention) -> None:
        """The weights of an `mha`: its one projection has the rows of q, k and v, one head after the other."""
        projections = [*self.q, *self.k, *self.v]
        for name, rows in other.qkv.named_parameters():
            for ours, theirs in zip(projections, rows.chunk(len(projections)), strict=True):
                ours.get_parameter(name).copy_(theirs)
        self.out.load_state_dict(other.out.state_dict())

    def closed_form(self, at: Lengths) -> int:
        """Those of `mha`: 4 d h k FLOPs a token, 4 d h k a token read, 4 h k a pair."""
        dim, width = self.out.out_features, self.out.in_features
        return at.batch * 4 * width * (dim * (at.tokens + at.read) + at.pairs)


def _each(projections: Iterable[nn.Module], x: Tensor) -> Tensor:
    return torch.stack([projection(x) for projection in projections], dim=1)  # (B, heads, T, head_dim)


def _of(scores: Tensor | None, head: slice) -> Tensor | None:
    """One head's part of a tensor that broadcasts to (B, heads, T, S)."""
    if scores is None or scores.ndim < 3 or scores.shape[-3] == 1:
        return scores
    return scores[..., head, :, :]
