"""The parts that `moe` and `latent_moe` share: what their parameters build."""

from typing import Literal

from torch import nn

from explorer import Activation, Width
from explorer_feedforwards.best_scores import BestScores
from explorer_feedforwards.router import Router
from explorer_feedforwards.shared_expert import SharedExpert
from explorer_feedforwards.token_table import TokenTable


def make_router(
    dim: int,
    bias: bool,
    vocab: int | None,
    *,
    experts: int,
    top_k: int,
    router: str,
    select: str,
    selection_bias: bool,
    renormalise: bool,
    scale: float,
    groups: int,
    top_groups: int,
    group_score: Literal["top2", "max"],
) -> Router:
    """Raises: ValueError where the sizes do not fit each other, or a parameter would do nothing."""
    if select == "token":
        choice = _by_token(vocab, experts, top_k, chosen_by_score=selection_bias or groups > 1)
    else:
        choice = BestScores(
            experts=experts,
            top_k=top_k,
            selection_bias=selection_bias,
            groups=groups,
            top_groups=top_groups,
            group_score=group_score,
        )
    return Router(dim, bias, choice, experts=experts, score=router, renormalise=renormalise, scale=scale)


def _by_token(vocab: int | None, experts: int, top_k: int, *, chosen_by_score: bool) -> nn.Module:
    if vocab is None:
        raise ValueError("select token chooses experts by token id: it needs `vocab`")
    if chosen_by_score:
        raise ValueError("selection_bias and groups need select score: select token looks at no scores")
    return TokenTable(vocab, experts=experts, top_k=top_k)


def make_shared(
    dim: int,
    activation: Activation,
    bias: bool,
    dropout: float,
    *,
    shared: int,
    hidden: Width,
    shared_hidden: Width | None,
    gated: bool,
) -> SharedExpert | None:
    """`shared` experts of width `shared_hidden`, else `hidden`, as one; None where there are none.

    Raises: ValueError for a width or a gate of no experts.
    """
    if shared:
        width = shared * (shared_hidden or hidden).of(dim)
        return SharedExpert(dim, activation, bias, dropout, hidden=width, gated=gated)
    for name, given in (("shared_hidden", shared_hidden is not None), ("shared_gate", gated)):
        if given:
            raise ValueError(f"{name} needs shared experts, and shared is 0")
    return None
