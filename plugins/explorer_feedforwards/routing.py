"""The parts that `moe` and `latent_moe` share, as their parameters say them."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from explorer import Activation, Width
from explorer_feedforwards.best_scores import BestScores
from explorer_feedforwards.router import Router
from explorer_feedforwards.shared_expert import SharedExpert
from explorer_feedforwards.token_table import TokenTable


@dataclass(frozen=True)
class Selection:
    """How the experts of a token are chosen."""

    select: str
    selection_bias: bool
    groups: int
    top_groups: int
    group_score: Literal["top2", "max"]

    def build(self, experts: int, top_k: int, vocab: int | None) -> nn.Module:
        """Raises: ValueError where the sizes do not fit each other, or a parameter would do nothing."""
        if self.select == "token":
            return self._by_token(experts, top_k, vocab)
        return BestScores(
            experts=experts,
            top_k=top_k,
            selection_bias=self.selection_bias,
            groups=self.groups,
            top_groups=self.top_groups,
            group_score=self.group_score,
        )

    def _by_token(self, experts: int, top_k: int, vocab: int | None) -> nn.Module:
        if vocab is None:
            raise ValueError("select token chooses experts by token id: it needs `vocab`")
        if self.selection_bias or self.groups > 1:
            raise ValueError("selection_bias and groups need select score: select token looks at no scores")
        return TokenTable(vocab, experts=experts, top_k=top_k)


@dataclass(frozen=True)
class Routing:
    """How many experts there are, which a token gets, and what they weigh."""

    experts: int
    top_k: int
    score: str
    renormalise: bool
    scale: float

    def build(self, dim: int, bias: bool, vocab: int | None, selection: Selection) -> Router:
        """Raises: ValueError as `Selection.build` does."""
        choice = selection.build(self.experts, self.top_k, vocab)
        return Router(
            dim,
            bias,
            choice,
            experts=self.experts,
            score=self.score,
            renormalise=self.renormalise,
            scale=self.scale,
        )


@dataclass(frozen=True)
class Shared:
    """`shared` experts of width `hidden`, else the width of the others, as one."""

    shared: int
    hidden: Width | None
    gated: bool

    def build(
        self, dim: int, activation: Activation, bias: bool, dropout: float, *, others: Width
    ) -> SharedExpert | None:
        """None where there are none.

        Raises: ValueError for a width or a gate of no experts.
        """
        if self.shared:
            width = self.shared * (self.hidden or others).of(dim)
            return SharedExpert(dim, activation, bias, dropout, hidden=width, gated=self.gated)
        for name, given in (("shared_hidden", self.hidden is not None), ("shared_gate", self.gated)):
            if given:
                raise ValueError(f"{name} needs shared experts, and shared is 0")
        return None
