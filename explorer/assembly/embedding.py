"""The input table of a model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from explorer.blueprint.plan import ModelPlan


class Embedding(nn.Module):
    """norm(placed(scale * table[ids]) + type 0), token ids (B, T) -> (B, T, dim); what is not asked for falls away.

    An encoder and a decoder share it; `placed` adds the position, each stack its own.
    """

    def __init__(
        self, dim: int, vocab: int, *, scale: float | None = None, norm: nn.Module | None = None, types: int = 0
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.types = nn.Embedding(types, dim) if types else None
        self.norm = norm
        self.scale = scale

    def forward(self, ids: Tensor, placed: Callable[[Tensor], Tensor]) -> Tensor:
        x = self.table(ids)  # (B, T, dim)
        if self.scale is not None:
            x = x * self.scale
        x = placed(x)
        if self.types is not None:
            x = x + self.types.weight[0]
        return x if self.norm is None else self.norm(x)


def make_embedding(plan: ModelPlan) -> Embedding | None:
    """The table of a plan; None without a vocabulary."""
    if plan.vocab is None:
        return None
    norm = plan.embedding.norm
    built = None if norm is None else norm.build({"dim": plan.dim})
    return Embedding(plan.dim, plan.vocab, scale=plan.embedding.scale, norm=built, types=plan.embedding.types)
