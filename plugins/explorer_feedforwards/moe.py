from typing import Annotated, Literal

from annotated_types import Ge, Gt

from explorer import Activation, Width
from explorer_feedforwards.experts import Experts
from explorer_feedforwards.mixture import MixtureOfExperts
from explorer_feedforwards.routing import Routing, Selection, Shared


def moe(
    dim: int,
    activation: Activation,
    bias: bool,
    dropout: float,
    vocab: int | None,
    *,
    experts: Annotated[int, Ge(1)],
    top_k: Annotated[int, Ge(1)],
    hidden: Width,
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
    """y = sum_e w_e E_e(x) + shared(x) over the top_k experts e of a token; each E_e is a `dense` of width `hidden`.

    Shazeer et al. 2017, arXiv:1701.06538; Jiang et al. 2024 (Mixtral), arXiv:2401.04088; Dai et al. 2024 (DeepSeekMoE),
    arXiv:2401.06066; DeepSeek-AI 2024 (V3), arXiv:2412.19437; 2026 (V4), arXiv:2606.19348. s = router(W x), w: float32.
    hidden: of each expert; a ratio is one of dim. shared: experts for every token, built as one, shared_hidden wide
    each (null: hidden); shared_gate: sigmoid(w x) times their output. router: sqrt_softplus is sqrt(log(1 + e^z)) (V4).
    select: `score`, the best; `token`, by id, weighed by score (V4's first layers). selection_bias: a buffer added to
    the scores for the choice only. groups: the choice is within the top_groups best; a group scores as the sum of its
    two best experts, `top2` (V3), or its best, `max` (V2). renormalise: w = scale s / sum s over the chosen, else
    w = scale s (V2). bias: in the experts and in the router (gpt-oss).
    """
    selection = Selection(select, selection_bias, groups, top_groups, group_score)
    routes = Routing(experts, top_k, router, renormalise, scale).build(dim, bias, vocab, selection)
    own = Experts(dim, activation, bias, dropout, experts=experts, hidden=hidden.of(dim))
    beside = Shared(shared, shared_hidden, shared_gate).build(dim, activation, bias, dropout, others=hidden)
    return MixtureOfExperts(routes, own, beside, top_k=top_k)
