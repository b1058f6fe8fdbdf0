"""The check of `same_as` fails for each way in which such a declaration may be wrong, and passes for true ones."""

from __future__ import annotations

from typing import Any, ClassVar, Literal
from unittest import SkipTest

import pytest
import torch
from torch import Tensor, nn

from explorer import Position, Visible
from explorer.testing import Case
from explorer_attentions.mha_naive import NaiveMultiHeadAttention


class Root(nn.Module):
    """`rmsnorm` written out, with a default of its own for what both call `eps`."""

    same_as: ClassVar[str] = "rmsnorm"

    def __init__(self, dim: int, *, eps: float = 1e-3):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (self.weight * wide / (wide.square().mean(-1, keepdim=True) + self.eps).sqrt()).to(x.dtype)

    def load_from(self, other: nn.Module) -> None:
        self.weight.copy_(other.get_parameter("weight"))


class Plain(Root):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class Nobody(Root):
    same_as = "rmsnrom"


class OtherKind(Root):
    same_as = "mha"


class Itself(Root):
    same_as = "broken"


class LongName(Root):
    same_as = "explorer_norms:rmsnorm"


class TakesNothingOver(Root):
    def load_from(self, other: nn.Module) -> None:
        pass


class AsksForMore(Root):
    def load_from(self, other: nn.Module) -> None:
        self.weight.copy_(other.get_parameter("gain"))


class OwnConstant(Root):
    """Without the option that the other has, and with another value than its default."""

    def __init__(self, dim: int):
        super().__init__(dim, eps=1e-2)


class MoreOptions(Root):
    def __init__(self, dim: int, *, eps: float = 1e-3, power: Literal["one", "two"] = "one"):
        super().__init__(dim, eps=eps)
        self.power = power

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.power == "one" else super().forward(x).square()


class OtherWay(MoreOptions):
    """An option of how, not what."""

    def forward(self, x: Tensor) -> Tensor:
        return Root.forward(self, x) if self.power == "one" else -Root.forward(self, -x)


class WrongGradient(Root):
    def forward(self, x: Tensor) -> Tensor:
        right = super().forward(x)
        return x + (right - x).detach()


class WrongWeightGradient(Root):
    def forward(self, x: Tensor) -> Tensor:
        right = super().forward(x)
        return right + 0.01 * (right / self.weight).detach() * (self.weight - self.weight.detach())


class HalfDeclared(nn.RMSNorm):
    same_as = "rmsnorm"

    def __init__(self, dim: int):
        super().__init__(dim)


class Naive(NaiveMultiHeadAttention):
    """The true one; those below differ from it in one thing."""


class Nothing(Naive):
    same_as = "none"


class NoWindow(Naive):
    def forward(self, x, context=None, mask=None, cache=None):
        self.visible = Visible(self.visible.causal, None)
        return super().forward(x, context, mask, cache)


class AlwaysCausal(Naive):
    def forward(self, x, context=None, mask=None, cache=None):
        self.visible = Visible(True, self.visible.window)
        return super().forward(x, context, mask, cache)


class WrongWithCache(Naive):
    def forward(self, x, context=None, mask=None, cache=None):
        return super().forward(x, context, mask, cache) * (1 if cache is None else 1.01)


class NoMask(Naive):
    def forward(self, x, context=None, mask=None, cache=None):
        return super().forward(x, context, None, cache)


class PaddingAlone(Naive):
    """Reads the last row of a mask for all queries: of padding there is only that."""

    def forward(self, x, context=None, mask=None, cache=None):
        return super().forward(x, context, None if mask is None else mask[..., -1:, :], cache)


class OnlyRotates(Position):
    def __init__(self, inner: Position):
        super().__init__()
        self.inner = inner

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.inner.rotate(x, positions)


class NoScoresBias(Naive):
    """Right with all positions but those that add to the scores."""

    def forward(self, x, context=None, mask=None, cache=None):
        self.position = (OnlyRotates(self.position[0]),)
        return super().forward(x, context, mask, cache)


class NoBias(Naive):
    """Forgets the bias of its last projection, which is there in some blocks only."""

    def load_from(self, other):
        super().load_from(other)
        if self.out.bias is not None:
            self.out.bias.zero_()


class HalfTheSource(Naive):
    def forward(self, x, context=None, mask=None, cache=None):
        return super().forward(x, None if context is None else context[:, :-1], mask, cache)


BREAKS = [  # kind, component, what the message says
    ("norm", Plain, "the results of 'rmsnorm', within rounding\n  came out: results differ by "),
    ("norm", Nobody, "no norm is called 'rmsnrom'\n  did you mean 'rmsnorm'?"),
    ("norm", OtherKind, "'mha' is of kind attention"),
    ("norm", Itself, "`same_as` to name another norm\n  came out: broken"),
    ("attention", Nothing, "`same_as` to name another attention\n  came out: none"),
    ("norm", LongName, "to declare blocks with the two equal: rmsnorm"),
    ("norm", HalfDeclared, "a method `load_from(other)` beside `same_as`"),
    ("norm", TakesNothingOver, "the results of 'rmsnorm', within rounding"),
    ("norm", AsksForMore, "gain"),
    ("norm", OwnConstant, "the results of 'rmsnorm', within rounding"),
    ("norm", MoreOptions, "the results of 'rmsnorm' with power: two, within"),
    ("norm", WrongGradient, "the gradients of 'rmsnorm', within rounding"),
    ("norm", WrongWeightGradient, "the gradients of 'rmsnorm', within rounding"),
    ("attention", WrongWithCache, "the cached step of 'mha', within rounding"),
    ("attention", NoWindow, "the results of 'mha' with window: 2, within"),
    ("attention", AlwaysCausal, "the results of 'mha' with causal: False, within"),
    ("attention", NoMask, "the results of 'mha' under a mask of padding, within"),
    ("attention", PaddingAlone, "the results of 'mha' under a mask, within"),
    ("attention", NoScoresBias, "the results of 'mha' with position: alibi, within"),
    ("attention", NoBias, "the results of 'mha' with bias: True, within"),
    ("attention", HalfTheSource, "the results of 'mha' as cross-attention, within"),
]


@pytest.mark.parametrize(("kind", "component", "message"), BREAKS)
def test_a_wrong_declaration_fails(fails: Any, kind: str, component: Any, message: str) -> None:
    fails(kind, component, "same_as_holds", message)


def check_of(made: list[Case]) -> Case:
    (case,) = (case for case in made if case.rule.name == "same_as_holds")
    return case


@pytest.mark.parametrize(("kind", "component"), [("norm", Root), ("norm", OtherWay), ("attention", Naive)])
def test_a_true_declaration_passes(cases: Any, kind: str, component: Any) -> None:
    check_of(cases({kind: {"true": component}})).check()


def test_what_declares_nothing_is_skipped(cases: Any) -> None:
    with pytest.raises(SkipTest, match="norm 'plain' declares no `same_as`"):
        check_of(cases({"norm": {"plain": lambda dim: nn.LayerNorm(dim)}})).check()
