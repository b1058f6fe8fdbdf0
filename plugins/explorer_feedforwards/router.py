from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import wide_dtype, without_autocast


class Router(nn.Module):
    """weights of the chosen experts: w = scale s_chosen / sum s_chosen, s = score(W x), (N, dim) -> (N, top_k) each.

    Logits, scores and weights are in float32 whatever the dtype of x, and under autocast. `choice(scores, ids)` says
    which experts are chosen; their weights come from the scores alone. Without `renormalise` w = scale s_chosen.
    """

    def __init__(
        self, dim: int, bias: bool, choice: nn.Module, *, experts: int, score: str, renormalise: bool, scale: float
    ):
        super().__init__()
        self.linear = nn.Linear(dim, experts, bias=bias)
        self.choice = choice
        self.score, self.renormalise, self.scale = score, renormalise, scale

    def forward(self, x: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """The weights (N, top_k) and the experts (N, top_k) of tokens x (N, dim) with ids (B, T), N = B T."""
        wide = wide_dtype(x.dtype)
        bias = None if self.linear.bias is None else self.linear.bias.to(wide)
        with without_autocast(x):
            logits = F.linear(x.to(wide), self.linear.weight.to(wide), bias)  # (N, experts)
        scores = SCORES[self.score](logits)
        chosen = self.choice(scores, ids)  # (N, top_k)
        weights = scores.gather(-1, chosen)
        if self.renormalise:
            weights = weights / (weights.sum(-1, keepdim=True) + TINY)
        return weights if self.scale == 1 else weights * self.scale, chosen


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=-1)


def _sqrt_softplus(logits: Tensor) -> Tensor:
    # Far down softplus is e^z, which is 0 in float32 from -104 on: there the gradient of its root would be nan.
    small = (logits.clamp_max(_FAR_DOWN) / 2).exp()
    return torch.where(logits < _FAR_DOWN, small, F.softplus(logits.clamp_min(_FAR_DOWN)).sqrt())


_FAR_DOWN = -40.0  # log(1 + e^z) is e^z to a part in 1e17

SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "softmax": _softmax,
    "sigmoid": torch.sigmoid,
    "sqrt_softplus": _sqrt_softplus,
}
TINY = 1e-20  # sigmoids of very negative logits are all zeros: weights of 0, not nan
