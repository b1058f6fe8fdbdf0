import torch
from torch import Tensor, nn

from explorer_attentions.steps import out_of_heads


class GroupedOutput(nn.Module):
    """W_o [W_1 y_1 ... W_g y_g], y_i the outputs of one of `groups` groups of heads: a low-rank W_o.

    DeepSeek-AI 2026, arXiv:2606.19348, section 2.3.1. groups None: one linear map of all heads.

    rank: channels that a group's outputs are taken down to.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, groups: int | None, rank: int):
        super().__init__()
        if groups is not None and heads % groups:
            raise ValueError(f"heads {heads} must divide by out_groups {groups}")
        self.groups, self.rank, self.width = groups, rank, heads * head_dim
        # The weight of group i is rows i rank ... (i + 1) rank; each has only its own group's channels as inputs.
        self.down = None if groups is None else nn.Linear(self.width // groups, groups * rank, bias=False)
        self.up = nn.Linear(self.width if groups is None else groups * rank, dim, bias=False)

    def forward(self, y: Tensor) -> Tensor:
        """(B, heads, T, head_dim) -> (B, T, dim)."""
        y = out_of_heads(y)  # (B, T, heads * head_dim)
        if self.groups is not None and self.down is not None:
            weight = self.down.weight.unflatten(0, (self.groups, -1))  # (groups, rank, width / groups)
            y = torch.einsum("btgi,gri->btgr", y.unflatten(-1, (self.groups, -1)), weight).flatten(2)
        return self.up(y)

    def flops_per_token(self) -> int:
        """2 h k d, in groups 2 h k rank + 2 groups rank d."""
        dim = self.up.out_features
        if self.groups is None:
            return 2 * self.width * dim
        return 2 * self.rank * (self.width + self.groups * dim)
