from typing import Annotated, Literal

from annotated_types import Ge, Gt

from explorer import Activation, Norm, Width
from explorer_feedforwards.latent_experts import LatentExperts, LatentSizes
from explorer_feedforwards.mixture import MixtureOfExperts
from explorer_feedforwards.routing import Routing, Selection, Shared


def latent_moe(
    dim: int,
    activation: Activation,
    bias: bool,
    dropout: float,
    vocab: int | None,
    *,
    experts: Annotated[int, Ge(1)],
    top_k: Annotated[int, Ge(1)],
    hidden: Width,
    latent: Width,
    norm: Norm = "rmsnorm",  # type: ignore[assignment]  # as a blueprint writes it
    shared: Annotated[int, Ge(0)] = 0,
    shared_hidden: Width | None = None,
    shared_gate: bool = False,
    router: Literal["softmax", "sigmoid", "sqrt_softplus"] = "softmax",
    select: Literal["score", "token"] = "score",
    selection_bias: bool = False,
    renormalise: bool = True,
    scale: Annotated[float, Gt(0)] = 1.0,
    groups: Annotated[int, Ge(1)] = 1,
    top_groups: Annotated[int, Ge(1)] = 1,
    group_score: Literal["top2", "max"] = "top2",
) -> MixtureOfExperts:
    """y = W_up norm(u) + shared(x), u = sum_e w_e E_e(W_down x): experts in a latent width. Kimi Team 2026 (K3).

    arXiv:2607.24653. Router and shared experts read x in dim. On top of `moe`: 2 dim latent weights and the norm's;
    each expert's matrices are `latent` wide where those of `moe` are dim wide.

    latent: width between W_down and W_up; ratios of latent and hidden are ones of dim. norm: over the latent width.
    bias: in W_down and W_up too. The others are those of `moe`.
    """
    selection = Selection(select, selection_bias, groups, top_groups, group_score)
    routes = Routing(experts, top_k, router, renormalise, scale).build(dim, bias, vocab, selection)
    sizes = LatentSizes(experts, hidden.of(dim), latent.of(dim))
    own = LatentExperts(dim, activation, bias, dropout, sizes=sizes, norm=norm)
    beside = Shared(shared, shared_hidden, shared_gate).build(dim, activation, bias, dropout, others=hidden)
    return MixtureOfExperts(routes, own, beside, top_k=top_k)
