"""Which experts a token gets, and their weights: the papers' formulas step by step in float64; what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import explorer
from explorer import RefusedError, UsageError
from explorer_feedforwards.best_scores import BestScores
from explorer_feedforwards.router import SCORES as OURS
from explorer_feedforwards.router import Router
from explorer_feedforwards.token_table import TokenTable

DIM, EXPERTS, TOKENS = 16, 12, 40
SCORES = {
    "softmax": lambda z: z.exp() / z.exp().sum(-1, keepdim=True),
    "sigmoid": lambda z: 1 / (1 + (-z).exp()),
    "sqrt_softplus": lambda z: (1 + z.exp()).log().sqrt(),
}


def best(top_k: int = 3, **changes: Any) -> BestScores:
    defaults = {"selection_bias": False, "groups": 1, "top_groups": 1, "group_score": "top2"}
    return BestScores(experts=EXPERTS, top_k=top_k, **(defaults | changes))


def make(choice: torch.nn.Module, *, bias: bool = False, **changes: Any) -> Router:
    torch.manual_seed(0)
    return Router(
        DIM, bias, choice, **({"experts": EXPERTS, "score": "softmax", "renormalise": True, "scale": 1.0} | changes)
    )


def x(tokens: int = TOKENS) -> Tensor:
    return torch.randn(tokens, DIM, generator=torch.Generator().manual_seed(1))


def logits(router: Router, x: Tensor) -> Tensor:
    z = x.double() @ router.linear.weight.double().T
    return z if router.linear.bias is None else z + router.linear.bias.double()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("renormalise", "scale"), [(True, 1.0), (False, 1.0), (True, 2.5), (False, 16.0)])
@pytest.mark.parametrize("score", SCORES)
def test_weights_are_the_best_scores(score: str, renormalise: bool, scale: float, bias: bool) -> None:
    router = make(best(), score=score, renormalise=renormalise, scale=scale, bias=bias)
    weights, chosen = router(x(), None)
    wanted = SCORES[score](logits(router, x())).sort(descending=True)
    top = wanted.values[:, :3]
    assert torch.equal(chosen, wanted.indices[:, :3])
    expected = scale * (top / top.sum(-1, keepdim=True) if renormalise else top)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-5, atol=1e-6)


def test_softmax_renormalised_is_the_softmax_of_the_chosen_logits() -> None:
    """Mixtral's and gpt-oss's way to say it, and Qwen3's."""
    router = make(best())
    weights, chosen = router(x(), None)
    expected = logits(router, x()).gather(-1, chosen).softmax(-1)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-5, atol=1e-6)


def test_selection_bias_chooses_and_does_not_weigh() -> None:
    router = make(best(selection_bias=True), score="sigmoid")
    bias = torch.randn(EXPERTS, generator=torch.Generator().manual_seed(2))
    router.choice.selection_bias.copy_(bias)
    weights, chosen = router(x(), None)
    scores = SCORES["sigmoid"](logits(router, x()))
    assert torch.equal(chosen, (scores + bias).topk(3).indices)
    assert not torch.equal(chosen, scores.topk(3).indices)
    kept = scores.gather(-1, chosen)
    torch.testing.assert_close(weights.double(), kept / kept.sum(-1, keepdim=True), rtol=1e-5, atol=1e-6)


def test_selection_bias_is_a_float32_buffer() -> None:
    with torch.device("meta"):
        choice = best(selection_bias=True).bfloat16()
    assert list(choice.parameters()) == []
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert best(selection_bias=True).selection_bias.dtype == torch.float32
    finally:
        torch.set_default_dtype(default)
    assert set(best(selection_bias=True).state_dict()) == {"selection_bias"}
    assert best().state_dict() == {}


@pytest.mark.parametrize("group_score", ["top2", "max"])
@pytest.mark.parametrize("selection_bias", [False, True])
def test_choice_within_the_best_groups(group_score: str, selection_bias: bool) -> None:
    choice = best(groups=4, top_groups=2, group_score=group_score, selection_bias=selection_bias)
    scores = torch.rand(TOKENS, EXPERTS, generator=torch.Generator().manual_seed(3))
    bias = torch.zeros(EXPERTS)
    if selection_bias:
        bias = torch.randn(EXPERTS, generator=torch.Generator().manual_seed(4))
        choice.selection_bias.copy_(bias)
    for row, chosen in zip((scores + bias).tolist(), choice(scores, None).tolist(), strict=True):
        groups = [range(first, first + 3) for first in range(0, EXPERTS, 3)]

        def worth(group: range, row: list[float] = row) -> float:
            ordered = sorted((row[e] for e in group), reverse=True)
            return sum(ordered[:2]) if group_score == "top2" else ordered[0]

        allowed = [e for group in sorted(groups, key=worth, reverse=True)[:2] for e in group]
        assert sorted(chosen) == sorted(sorted(allowed, key=lambda e: row[e], reverse=True)[:3])


def test_negative_scores_stay_within_their_groups() -> None:
    """A bias may bring all scores below 0: what other groups hold must be lower still."""
    choice = best(groups=4, top_groups=2, selection_bias=True)
    choice.selection_bias.fill_(-5.0)
    scores = torch.rand(TOKENS, EXPERTS, generator=torch.Generator().manual_seed(3))
    assert torch.equal(choice(scores, None), best(groups=4, top_groups=2)(scores, None))


def test_all_groups_are_no_limit() -> None:
    scores = torch.rand(TOKENS, EXPERTS)
    assert torch.equal(best(groups=4, top_groups=4)(scores, None), best()(scores, None))


def test_the_table_alone_says_which_experts() -> None:
    vocab, top_k = 30, 3
    router = make(TokenTable(vocab, experts=EXPERTS, top_k=top_k), score="sqrt_softplus")
    ids = torch.randint(vocab, (2, TOKENS // 2), generator=torch.Generator().manual_seed(5))
    weights, chosen = router(x(), ids)
    assert chosen.tolist() == [[(t * top_k + j) % EXPERTS for j in range(top_k)] for t in ids.flatten().tolist()]
    kept = SCORES["sqrt_softplus"](logits(router, x())).gather(-1, chosen)
    torch.testing.assert_close(weights.double(), kept / kept.sum(-1, keepdim=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("top_k", [1, 5, EXPERTS])
def test_the_table_gives_different_experts_and_all_of_them_alike(top_k: int) -> None:
    table = TokenTable(EXPERTS * 7, experts=EXPERTS, top_k=top_k).table
    assert all(len(set(row)) == top_k for row in table.tolist())
    assert set(table.flatten().bincount(minlength=EXPERTS).tolist()) == {7 * top_k}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_routed_in_float32(dtype: torch.dtype) -> None:
    router = make(best(), bias=True).to(dtype)
    weights, chosen = router(x().to(dtype), None)
    exact = make(best(), bias=True).double()
    exact.load_state_dict(router.state_dict())
    wanted, theirs = exact(x().to(dtype).double(), None)
    assert (weights.dtype, wanted.dtype) == (torch.float32, torch.float64)
    assert torch.equal(chosen, theirs)
    torch.testing.assert_close(weights.double(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("score", SCORES)
def test_scores_that_vanish_are_weights_of_zero(score: str) -> None:
    router = make(best(), score=score, bias=True)
    with torch.no_grad():
        router.linear.bias.fill_(-200.0)
    weights, _ = router(x(), None)
    assert bool(weights.isfinite().all())


EXTREME = [-1000.0, -200.0, -104.0, -103.0, -90.0, -87.0, -60.0, -40.0, -39.0, 0.0, 30.0, 1000.0]  # one an expert


@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize("shift", [0.0, -120.0, -2000.0], ids=["all sizes", "far down", "vanished"])
@pytest.mark.parametrize("score", SCORES)
def test_gradients_at_extreme_logits(score: str, shift: float, renormalise: bool) -> None:
    """Finite ones for all experts, chosen or not; and those of float64 where float32 holds the scores."""
    gradients = []
    for dtype in (torch.float32, torch.float64):
        router = make(best(), score=score, bias=True, renormalise=renormalise).to(dtype)
        with torch.no_grad():
            router.linear.weight.mul_(1e-3)
            router.linear.bias.copy_(torch.tensor(EXTREME) + shift)
        weights, _ = router(x().to(dtype), None)
        (weights * torch.tensor([1.0, -20.0, 300.0], dtype=dtype)).sum().backward()
        gradients.append(router.linear.bias.grad.double())
    assert bool(gradients[0].isfinite().all())
    if shift == 0:
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-4)


def test_sqrt_softplus_is_its_formula_and_its_slope() -> None:
    """In float64 by log1p; far down, where its square is no number of float32, it is e^(z / 2)."""
    values = [-170.0, -104.0, -90.0, -50.0, -40.5, -39.5, -20.0, -1.0, 0.5, 3.0, 50.0, 90.0]
    z = torch.tensor(values, requires_grad=True)
    score = OURS["sqrt_softplus"](z)
    (slope,) = torch.autograd.grad(score.sum(), z)
    exact = z.detach().double().requires_grad_()
    formula = (exact.clamp(min=0) + torch.log1p(torch.exp(-exact.abs()))).sqrt()
    (wanted,) = torch.autograd.grad(formula.sum(), exact)
    torch.testing.assert_close(score.double(), formula, rtol=1e-5, atol=0)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-5, atol=0)


def test_a_change_of_dtype_does_not_round_the_selection_bias() -> None:
    router = make(best(selection_bias=True))
    router.choice.selection_bias.fill_(1.0001)
    for dtype in (torch.bfloat16, torch.float16):
        router.to(dtype)
        torch.testing.assert_close(router.choice.selection_bias, torch.full((EXPERTS,), 1.0001), rtol=0, atol=0)
    assert router.linear.weight.dtype == torch.float16


def test_logits_are_float32_under_autocast() -> None:
    router = make(best(), bias=True)
    wanted = router(x(), None)
    with torch.autocast("cpu", torch.bfloat16):
        came = router(x(), None)
    torch.testing.assert_close(came, wanted, rtol=0, atol=0)


MOE = {"experts": 12, "top_k": 3, "hidden": 8}
REFUSED = {
    "top_k 5 must be at most experts 4": {"experts": 4, "top_k": 5},
    "experts 12 must divide by groups 5": {"groups": 5},
    "top_groups 5 must be at most groups 4": {"groups": 4, "top_groups": 5},
    "top_k 7 must be at most 6: top_groups 2 of 3 experts": {"top_k": 7, "groups": 4, "top_groups": 2},
    "group_score top2 needs groups of 2 experts or more: experts 12, groups 12": {"groups": 12, "top_groups": 4},
    "selection_bias and groups need select score": {"select": "token", "selection_bias": True},
    "select token looks at no scores": {"select": "token", "groups": 2, "top_groups": 2},
    "top_k 13 must be at most experts 12": {"select": "token", "top_k": 13},
    "shared_hidden needs shared experts, and shared is 0": {"shared_hidden": 8},
    "shared_gate needs shared experts, and shared is 0": {"shared_gate": True},
}


@pytest.mark.parametrize("said", REFUSED)
@pytest.mark.parametrize("name", ["moe", "latent_moe"])
def test_refused(name: str, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        block(name, {**MOE, **REFUSED[said]})


def test_select_token_needs_a_vocabulary_and_ids() -> None:
    with pytest.raises(RefusedError, match="select token chooses experts by token id: it needs `vocab`"):
        block("moe", {**MOE, "select": "token"}, vocab=None)
    module = block("moe", {**MOE, "select": "token"}, device="cpu")
    with pytest.raises(UsageError, match="`ids` must be given"):
        module(torch.randn(2, 5, DIM))


def block(name: str, parameters: dict[str, Any], *, vocab: int | None = 30, device: str = "meta") -> Any:
    extra = {"latent": 8} if name == "latent_moe" else {}
    fields = {"dim": DIM, "heads": 4, "vocab": vocab, "feedforward": {name: {**parameters, **extra}}}
    return explorer.build(fields, "block", device=device)
