"""What reads the last hidden state: logits, a pooled vector, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.blueprint.plan import ModelPlan
from explorer.errors import RefusedError
from explorer.registry.makers import Activation


class LmHead(nn.Module):
    """cap(table (scale h) + bias), (B, T, dim) -> logits (B, T, vocab), cap(x) = softcap tanh(x / softcap).

    table: the input table where it is tied, else the head has its own.
    """

    def __init__(
        self,
        dim: int,
        vocab: int,
        table: nn.Embedding | None,
        *,
        bias: bool = False,
        scale: float | str | None = None,
        softcap: float | None = None,
    ) -> None:
        super().__init__()
        self.table = nn.Linear(dim, vocab, bias=False) if table is None else None
        # In a tuple: the embedding's, not a submodule of the head; the module, because moving may replace its weight.
        self.tied = (table,)
        self.bias = nn.Parameter(torch.zeros(vocab)) if bias else None
        self.scale = _scale(scale, dim)
        self.softcap = softcap

    def forward(self, h: Tensor) -> Tensor:
        if self.scale is not None:
            h = h * self.scale
        table = self.table if self.tied[0] is None else self.tied[0]
        assert table is not None, "one of the two tables is always there"
        logits = F.linear(h, table.weight, self.bias)  # (B, T, vocab)
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits


class Pooler(nn.Module):
    """activation(W h_0 + b) of position 0, (B, T, dim) -> (B, dim). Devlin et al. 2018, arXiv:1810.04805.

    Raises: ValueError for a gated activation.
    """

    def __init__(self, dim: int, vocab: int, table: nn.Embedding | None, *, activation: Activation) -> None:
        super().__init__()
        if activation.inputs != 1:
            raise ValueError(f"its activation must take one input, not {activation.inputs} (gated)")
        self.linear = nn.Linear(dim, dim)
        self.activation = activation()

    def forward(self, h: Tensor) -> Tensor:
        return self.activation(self.linear(h[:, 0]))  # (B, dim)


class NoHead(nn.Module):
    """Hidden states, (B, T, dim) -> (B, T, dim)."""

    def __init__(self, dim: int, vocab: int, table: nn.Embedding | None) -> None:
        super().__init__()

    def forward(self, h: Tensor) -> Tensor:
        return h


HEADS: Mapping[str, Callable[..., nn.Module]] = {"lm": LmHead, "pooler": Pooler, "none": NoHead}


def make_head(plan: ModelPlan, table: nn.Embedding | None) -> nn.Module | None:
    """The head of a plan; None without a vocabulary.

    Raises: RefusedError.
    """
    if plan.vocab is None:
        return None
    options: dict[str, Any] = plan.head.arguments()
    try:
        return HEADS[plan.head.name](plan.dim, plan.vocab, table if plan.tie_embeddings else None, **options)
    except ValueError as error:
        raise RefusedError(f"head '{plan.head.short()}': {error}", plan.head.where) from error


def _scale(scale: float | str | None, dim: int) -> float | None:
    return {"rsqrt_dim": dim**-0.5}[scale] if isinstance(scale, str) else scale
