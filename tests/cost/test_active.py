"""Parameters that one token uses: everything of a dense module, and of indexed or grouped weights what is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import grouped
from explorer.assembly.position import Position
from explorer.cost.active import active_parameters

D, HIDDEN, EXPERTS, TOP_K = 64, 128, 8, 2


def ids() -> Tensor:
    return torch.zeros(1, 1, dtype=torch.long, device="meta")


def total(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def token() -> Tensor:
    return torch.empty(1, 1, D, device="meta")


DENSE: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, 7),
    "encoder layer": lambda: nn.TransformerEncoderLayer(D, 4, 96, batch_first=True),
    "encoder layer in evaluation": lambda: nn.TransformerEncoderLayer(D, 4, 96, batch_first=True).eval(),
    "norms": lambda: nn.Sequential(nn.LayerNorm(D), nn.RMSNorm(D)),
    "compiled": lambda: nn.Sequential(torch.compile(nn.Linear(D, D), backend="eager")),
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_a_dense_module_uses_everything(name: str, mode: Callable[[], Any]) -> None:
    with torch.device("meta"):
        module = DENSE[name]()
    with mode():
        assert active_parameters(module, lambda: module(token())) == (total(module), None)


class Experts(nn.Module):
    """Case A7: 8 gated experts, two for each token, written in several ways."""

    def __init__(self, taken: Callable[[Experts, Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.router = nn.Linear(D, EXPERTS, bias=False)
        self.up, self.down = (
            nn.Parameter(torch.empty(EXPERTS, D, 2 * HIDDEN)),
            nn.Parameter(torch.empty(EXPERTS, HIDDEN, D)),
        )
        self.taken = taken

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).topk(TOP_K, -1)
        return self.taken(self, x, weights, chosen)


def gate(h: Tensor) -> Tensor:
    a, b = h.chunk(2, -1)
    return F.silu(a) * b


def by_index(experts: Experts, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    h = gate(torch.einsum("btd,btkdh->btkh", x, experts.up[chosen]))
    return torch.einsum("btk,btkh,btkhd->btd", weights, h, experts.down[chosen])


def by_index_select_of_a_cast(experts: Experts, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    up = experts.up.double().index_select(0, chosen.flatten())
    down = experts.down.double().index_select(0, chosen.flatten())
    return gate(x.double() @ up) @ down


def one_by_one(experts: Experts, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    picks = [chosen[0, :, k] for k in range(TOP_K)]
    return torch.stack([gate(x @ experts.up[pick]) @ experts.down[pick] for pick in picks]).sum(0)


def by_expert(x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """A row for each expert of each token, sorted by expert, and where the rows of each expert end."""
    offsets = (chosen.flatten()[:, None] == torch.arange(EXPERTS, device="meta")).sum(0).cumsum(0).int()
    return x.flatten(0, 1)[chosen.flatten().argsort() // TOP_K], offsets


def by_torchs_grouped_mm(experts: Experts, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    rows, offsets = by_expert(x, chosen)
    h = gate(F.grouped_mm(rows.bfloat16(), experts.up.bfloat16(), offs=offsets))
    return F.grouped_mm(h, experts.down.bfloat16(), offs=offsets)


def by_grouped(experts: Experts, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    rows, offsets = by_expert(x, chosen)
    return grouped(gate(grouped(rows, experts.up, offsets)), experts.down, offsets)


WAYS = [by_index, by_index_select_of_a_cast, one_by_one, by_torchs_grouped_mm, by_grouped]


@pytest.mark.parametrize("taken", WAYS)
def test_chosen_experts_count_and_no_others(taken: Callable[..., Tensor]) -> None:
    with torch.device("meta"):
        module = Experts(taken)
    assert total(module) == 197_120
    assert active_parameters(module, lambda: module(token())) == (49_664, None)


def test_rows_of_two_choices_may_coincide() -> None:
    with torch.device("meta"):
        module = Experts(by_index)
    active, reason = active_parameters(module, lambda: module(module(token())))
    assert active is None
    assert reason is not None
    assert reason.endswith("is indexed more than once: the same rows may be taken again")


def test_rows_of_a_stack_cannot_be_attributed() -> None:
    with torch.device("meta"):
        module = nn.ModuleList(nn.Linear(D, D, bias=False) for _ in range(3))

    def run() -> Tensor:
        return token() @ torch.stack([linear.weight for linear in module])[ids()]

    assert active_parameters(module, run) == (
        None,
        "rows are taken of what was computed from 0.weight, 1.weight, 2.weight",
    )


class Tables(Position):
    """A table of distances, indexed."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(32, 4))

    def bias(self, T: int, S: int, offset: int) -> Tensor:
        return self.table[ids()]


def test_tables_count_whole() -> None:
    with torch.device("meta"):
        embedding, position = nn.Embedding(100, D), Tables()
    assert active_parameters(embedding, lambda: embedding(ids())) == (6400, None)
    assert active_parameters(position, lambda: position.bias(1, 1, 0) + 1) == (128, None)


def test_tied_weights_count_once_and_idle_ones_not_at_all() -> None:
    with torch.device("meta"):
        module = nn.ModuleDict({"embed": nn.Embedding(100, D), "head": nn.Linear(D, 100), "idle": nn.Linear(D, D)})
    module["head"].weight = module["embed"].weight

    def run() -> Tensor:
        x = module["embed"](ids())
        return module["head"](x) + torch.zeros_like(module["idle"].weight).sum()

    assert active_parameters(module, run) == (6400 + 100, None)


def test_a_view_of_a_fused_weight_is_the_weight() -> None:
    with torch.device("meta"):
        module = nn.Linear(D, 3 * D, bias=False)
    q, _, _ = module.weight.chunk(3)
    assert active_parameters(module, lambda: F.linear(token(), q)) == (3 * D * D, None)


def test_a_weight_computed_from_weights_uses_them() -> None:
    with torch.device("meta"):
        module = nn.ParameterList([torch.empty(D, D), torch.empty(D, 2), torch.empty(2, D), torch.empty(9)])
    base, a, b, _ = module
    assert active_parameters(module, lambda: token() @ (base + a @ b)) == (D * D + 4 * D, None)
    assert active_parameters(module, lambda: (base + 1).sum()) == (D * D, None)
