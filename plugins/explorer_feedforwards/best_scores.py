from typing import ClassVar, Literal

import torch
from torch import Tensor

from explorer import KeepsFloat32


class BestScores(KeepsFloat32):
    """The top_k experts by score + selection_bias, within the top_groups best groups, (N, experts) -> (N, top_k).

    Shazeer et al. 2017, arXiv:1701.06538.
    selection_bias: Wang et al. 2024, arXiv:2408.15664; a float32 buffer that starts at zero and that a training loop
    moves, not a gradient; it never enters the weights.
    groups: DeepSeek-AI 2024, arXiv:2405.04434 (V2), where a group scores as its best expert, `max`, and
    arXiv:2412.19437 (V3), as the sum of its two best, `top2`.
    """

    wide: ClassVar[tuple[str, ...]] = ("selection_bias",)

    selection_bias: Tensor | None

    def __init__(
        self,
        *,
        experts: int,
        top_k: int,
        selection_bias: bool,
        groups: int,
        top_groups: int,
        group_score: Literal["top2", "max"],
    ):
        super().__init__()
        _check_groups(experts, top_k, groups, top_groups, group_score)
        self.top_k, self.groups, self.top_groups, self.group_score = top_k, groups, top_groups, group_score
        self.register_buffer("selection_bias", torch.zeros(experts, dtype=torch.float32) if selection_bias else None)

    def forward(self, scores: Tensor, ids: Tensor | None) -> Tensor:
        if self.selection_bias is not None:
            scores = scores + self.selection_bias
        if self.top_groups < self.groups:
            scores = self._in_best_groups(scores)
        return scores.topk(self.top_k, dim=-1).indices

    def _in_best_groups(self, scores: Tensor) -> Tensor:
        """The scores, -inf in every group but the best."""
        apart = scores.unflatten(-1, (self.groups, -1))  # (N, groups, experts / groups)
        of_group = apart.amax(-1) if self.group_score == "max" else apart.topk(2, dim=-1).values.sum(-1)
        best = of_group.topk(self.top_groups, dim=-1).indices
        keep = torch.zeros_like(of_group, dtype=torch.bool).scatter(-1, best, True)
        return apart.masked_fill(~keep.unsqueeze(-1), float("-inf")).flatten(-2)


def _check_groups(experts: int, top_k: int, groups: int, top_groups: int, group_score: str) -> None:
    if top_k > experts:
        raise ValueError(f"top_k {top_k} must be at most experts {experts}")
    if experts % groups:
        raise ValueError(f"experts {experts} must divide by groups {groups}")
    if top_groups > groups:
        raise ValueError(f"top_groups {top_groups} must be at most groups {groups}")
    size = experts // groups
    if top_k > top_groups * size:
        raise ValueError(
            f"top_k {top_k} must be at most {top_groups * size}: top_groups {top_groups} of {size} experts"
        )
    if top_groups < groups and group_score == "top2" and size < 2:
        raise ValueError(f"group_score top2 needs groups of 2 experts or more: experts {experts}, groups {groups}")
