import torch
from torch import Tensor, nn

from explorer import Activation, Lengths, Width
from explorer_feedforwards.dense import Dense


class SharedExpert(nn.Module):
    """A feed-forward that every token passes, (B, T, dim) -> (B, T, dim); gated: sigmoid(w x) times its output.

    Dai et al. 2024 (DeepSeekMoE), arXiv:2401.06066. Several shared experts are one that is as wide as all of them:
    their outputs are added, so this is the same. The gate, dim weights without bias, is that of Qwen2-MoE (Yang et al.
    2024, arXiv:2407.10671) and Qwen3-Next.
    """

    def __init__(self, dim: int, activation: Activation, bias: bool, dropout: float, *, hidden: int, gated: bool):
        super().__init__()
        self.expert = Dense(dim, activation, bias, dropout, hidden=Width(hidden))
        self.gate = nn.Linear(dim, 1, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.expert(x)
        return y if self.gate is None else torch.sigmoid(self.gate(x)) * y

    def closed_form(self, at: Lengths) -> int:
        """That of `dense`, and 2 d FLOPs a token for the gate."""
        gate = 0 if self.gate is None else at.batch * at.tokens * 2 * self.gate.in_features
        return self.expert.closed_form(at) + gate
