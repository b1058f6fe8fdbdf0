from typing import Annotated, Literal

from annotated_types import Ge, Gt

from explorer import Activation, Width
from explorer_feedforwards.experts import Experts
from explorer_feedforwards.mixture import MixtureOfExperts
from explorer_feedforwards.routing import make_router, make_shared


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
    arXiv:2401.06066; DeepSeek-AI 2024 (V3), arXiv:2412.19437; DeepSeek-AI 2026 (V4), arXiv:2606.19348.
    Scores s = router(W x) and weights w are in float32. Only the chosen experts run, through `explorer.grouped`.

    hidden: width of each expert; a ratio is one of dim. shared: experts that every token passes, built as one, of width
    shared_hidden each, off: hidden. shared_gate: sigmoid(w x) times the shared output (Qwen3-Next).
    router: softmax over all experts, sigmoid (V3, Kimi K2), sqrt_softplus: sqrt(log(1 + e^z)) (V4).
    select: `score` takes the best scores, `token` looks the experts up by token id (V4's first layers) and weighs them
    by their scores. selection_bias: a buffer added to the scores for the choice only.
    groups: the choice is within the top_groups best of them; a group scores as the sum of its two best experts, `top2`
    (V3), or as its best, `max` (V2).
    renormalise: w = scale s / sum s over the chosen (Mixtral, Qwen3, gpt-oss, V3), else w = scale s (V2).
    bias: in the experts and in the router (gpt-oss).
    """
    return MixtureOfExperts(
        make_router(
            dim,
            bias,
            vocab,
            experts=experts,
            top_k=top_k,
            router=router,
            select=select,
            selection_bias=selection_bias,
            renormalise=renormalise,
            scale=scale,
            groups=groups,
            top_groups=top_groups,
            group_score=group_score,
        ),
        Experts(dim, activation, bias, dropout, experts=experts, hidden=hidden.of(dim)),
        make_shared(
            dim,
            activation,
            bias,
            dropout,
            shared=shared,
            hidden=hidden,
            shared_hidden=shared_hidden,
            gated=shared_gate,
        ),
    )
