from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch.nn.functional as F
from torch import Tensor, nn

from explorer import Activation, Lengths, Width

PLAIN = Width(ratio=Fraction(4))
GATED = Width(ratio=Fraction(8, 3), multiple_of=64)  # three matrices of 8/3 dim have the weights of two of 4 dim


class Dense(nn.Module):
    """W_down act(W_up x), or W_down act(W_gate x, W_up x) with a gated activation.

    Vaswani et al. 2017, arXiv:1706.03762; gated: Shazeer 2020, arXiv:2002.05202. The gate and up projections are one
    matrix of rows [gate | up]. Dropout acts after the activation.

    hidden: the width between the projections; null: 4 dim, gated: 8/3 dim rounded up to a multiple of 64.
    """

    def __init__(self, dim: int, activation: Activation, bias: bool, dropout: float, *, hidden: Width | None = None):
        super().__init__()
        self.inputs, self.dropout = activation.inputs, dropout
        width = (hidden or (PLAIN if self.inputs == 1 else GATED)).of(dim)
        self.up = nn.Linear(dim, self.inputs * width, bias=bias)
        self.activation = activation()
        self.down = nn.Linear(width, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.activation(*self.up(x).chunk(self.inputs, dim=-1))  # (B, T, hidden)
        return self.down(F.dropout(hidden, self.dropout, self.training))  # (B, T, dim)

    def branch_weights(self) -> Mapping[str, Sequence[Tensor]]:
        return {"value": [], "input": self.up.weight.chunk(self.inputs), "output": [self.down.weight]}

    def closed_form(self, at: Lengths) -> int:
        """4 d f FLOPs a token, gated 6 d f."""
        return at.batch * at.tokens * 2 * self.down.out_features * self.down.in_features * (self.inputs + 1)
