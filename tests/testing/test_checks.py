"""Each check fails for a component that breaks its rule, and none for components that keep the contract."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer import Position, Residual
from explorer.testing import CHECKS, ContractFailure

SHARED = nn.Parameter(torch.ones(16))


class Scale(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight.to(x.dtype) * x


class HalfStatistics(Scale):
    def forward(self, x):
        return self.weight.to(x.dtype) * x / (x * x).mean(-1, keepdim=True).sqrt()


class Widens(Scale):
    """What the usual RMSNorm in Python does to bfloat16 under a float32 weight."""

    def forward(self, x):
        return self.weight * F.rms_norm(x.float(), x.shape[-1:]).to(x.dtype)


class OverBatch(Scale):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class OverTokens(Scale):
    def forward(self, x):
        return super().forward(x - x.mean(-2, keepdim=True))


class Unused(Scale):
    def forward(self, x):
        return x


class Dead(Scale):
    """In the graph, but nothing comes of it."""

    def __init__(self, dim):
        super().__init__(dim)
        self.spare = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return super().forward(x) + 0.0 * self.spare.to(x.dtype)


class Noise(Scale):
    """The sum of a softmax is 1 whatever the weights: their gradients are not zeros, but rounding."""

    def __init__(self, dim):
        super().__init__(dim)
        self.spare = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return super().forward(x) * (3 * self.spare).softmax(-1).sum()


class InTraining(Scale):
    """Statistics over the batch, in training only."""

    def forward(self, x):
        return super().forward(x - x.mean((0, -2), keepdim=True) if self.training and x.ndim == 3 else x)


class Owns(InTraining):
    leaks = "in training, through the mean over batch and tokens"


class FalseAlarm(Scale):
    leaks = "not at all, in truth"


class Idle(Scale):
    """A parameter of which it says why it gets no gradient."""

    def __init__(self, dim):
        super().__init__(dim)
        self.spare = nn.Parameter(torch.zeros(dim))
        self.idle_parameters = {"spare": "nobody reads it"}


class FalselyIdle(Scale):
    def __init__(self, dim):
        super().__init__(dim)
        self.idle_parameters = {"weight": "not so"}


class Shares(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = SHARED

    def forward(self, x):
        return self.weight * x


class Unregistered(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = torch.randn(dim)

    def forward(self, x):
        return self.weight * x


class Transient(nn.Module):
    """A buffer outside the state_dict, made in __init__ only."""

    def __init__(self, dim):
        super().__init__()
        self.register_buffer("scale", torch.full((dim,), 2.0), persistent=False)

    def forward(self, x):
        return self.scale * x


class Elsewhere(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("scale", torch.full((dim,), 2.0, device="cpu"))

    def forward(self, x):
        return self.scale.to(x.device) * x


class Noisy(Scale):
    def forward(self, x):
        return x * (self.weight + torch.rand(()))


class Counts(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x


class MoreOnCpu(Scale):
    def __init__(self, dim):
        super().__init__(dim)
        if not self.weight.is_meta:
            self.more = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * self.weight if self.weight.is_meta else x * self.weight * self.more


class Breaks(Scale):
    def forward(self, x):
        return x * self.weight if x.sum().item() > 0 else x


class Uncounted(Scale):
    def forward(self, x):
        return x * self.weight * torch.linalg.det(torch.eye(2, device=x.device, dtype=x.dtype))


class Choosy(Scale):
    def __init__(self, dim, *, mode: Literal["good", "bad"] = "good"):
        super().__init__(dim)
        self.mode = mode

    def forward(self, x):
        return x * self.weight if self.mode == "good" else x * float("nan")


class SaysRmsNorm(Scale):
    """More ways to say it wrongly: test_twin_checks.py."""

    same_as = "rmsnorm"

    def load_from(self, other):
        self.weight.copy_(other.weight)


class Narrows(nn.Module):
    def forward(self, x):
        return x.float().square()


class Greedy(nn.Module):
    def forward(self, a, b, c):
        return a * b * c


class Rates(nn.Module):
    """A feed-forward that ignores its dropout rate."""

    def __init__(self, dim, dropout):
        super().__init__()
        self.map = nn.Linear(dim, dim)

    def forward(self, x):
        return self.map(x)


class Wrong(Residual):
    placements = ("pre", "before")

    def write(self, state, y):
        return state + y


class Two(Residual):
    """Two streams, of which a sublayer gets both."""

    def enter(self, x):
        return torch.stack([x, x])

    def write(self, state, y):
        return state + y

    def leave(self, state):
        return state.sum(0)


class Remembers(Residual):
    """Adds what an earlier pass wrote."""

    def __init__(self):
        super().__init__()
        self.before = 0.0

    def write(self, state, y):
        self.before, old = self.before + 1.0, self.before
        return state + y + old


class MacsForFlops(nn.Module):
    """A paper that counts a multiply-add once."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return self.linear(x)

    def closed_form(self, at):
        return at.batch * at.tokens * self.linear.weight.numel()


class Twice(nn.Module):
    def forward(self, x):
        return x + x


class FromZero(Position):
    def embed(self, x, positions):
        return x + torch.arange(x.shape[-2], device=x.device).to(x.dtype)[:, None]


class Rounded(Position):
    """Angles from a place in the dtype of x."""

    def rotate(self, x, positions):
        return x + torch.sin(positions.to(x.dtype))[:, None]


class BiasFromZero(Position):
    def bias(self, T, S, offset):
        return torch.arange(T)[:, None] - torch.arange(S) + 0.0


class HighBias(Position):
    def bias(self, T, S, offset):
        return torch.zeros(T, S, 3)


BREAKS = [  # kind, component, the check that fails, what its message says
    ("norm", Shares, "builds", "share no parameter"),
    ("norm", Widens, "keeps_shape_and_dtype", "float32"),
    ("norm", HalfStatistics, "float16_does_not_overflow", "|x| = 300"),
    ("norm", OverBatch, "batch_rows_independent", "row 0 to stay as it is"),
    ("norm", InTraining, "batch_rows_independent", "when row 1 changes in training"),
    ("norm", FalseAlarm, "batch_rows_independent", "in training, as `leaks` says"),
    ("norm", OverTokens, "hides_the_future", "tokens 0 to 0 to stay"),
    ("norm", InTraining, "hides_the_future", "changes in training"),
    ("norm", OverTokens, "cache_equals_full_pass", "1 + 1 + 1 + 1 + 1 tokens"),
    ("norm", Unused, "gradients", "norm.weight to receive a gradient of shape (16,)"),
    ("norm", Dead, "no_parameter_is_dead", "norm.spare to move the output"),
    ("norm", Noise, "no_parameter_is_dead", "norm.spare to move the output"),
    ("norm", FalselyIdle, "gradients", "as declared (not so)"),
    ("norm", Unregistered, "state_dict_round_trip", "another seed"),
    ("norm", Transient, "same_on_meta", "to_empty"),
    ("norm", Elsewhere, "same_on_meta", "tensors on cpu"),
    ("norm", MoreOnCpu, "same_on_meta", "norm.more: None for (16,) torch.float32"),
    ("norm", MoreOnCpu, "parameters_add_up", "the sum over parameters()"),
    ("norm", Noisy, "repeatable_in_eval", "the same output for the same input"),
    ("norm", Counts, "repeatable_in_eval", "calls as it was"),
    ("norm", Breaks, "compiles", "graph"),
    ("norm", Uncounted, "every_operator_counted", "linalg"),
    ("norm", Choosy, "other_settings_work", "with mode: bad"),
    ("norm", SaysRmsNorm, "same_as_holds", "the results of 'rmsnorm', within rounding"),
    ("activation", Narrows, "keeps_shape_and_dtype", "in torch.bfloat16"),
    ("activation", Greedy, "keeps_shape_and_dtype", "3 required arguments"),
    ("feedforward", Rates, "picked_dropout_acts", "in training"),
    ("feedforward", MacsForFlops, "closed_form_agrees", "matmul_flops of prefill to be"),
    ("residual", Wrong, "declares_placements", "before"),
    ("residual", Scale, "declares_placements", "an explorer.Residual"),
    ("residual", Two, "silent_sublayers", "what `read` gives"),
    ("residual", Remembers, "repeatable_in_eval", "the same output"),
    ("position", Twice, "keeps_shape_and_dtype", "an explorer.Position"),
    ("position", FromZero, "counts_from_the_start", "embed to give tokens 2 to 4"),
    ("position", BiasFromZero, "counts_from_the_start", "bias(T - 2, S, 2)"),
    ("position", Rounded, "far_places_in_bfloat16", "rotate from place 301"),
    ("position", HighBias, "keeps_shape_and_dtype", "bias to broadcast"),
]


@pytest.mark.parametrize(("kind", "component", "check", "message"), BREAKS)
def test_a_broken_component_fails_its_check(fails: Any, kind: str, component: Any, check: str, message: str) -> None:
    fails(kind, component, check, message)


@pytest.mark.parametrize("component", [Owns, Idle])
def test_what_a_component_declares_is_known(cases: Any, component: Any) -> None:
    about = {"gradients", "no_parameter_is_dead", "batch_rows_independent", "hides_the_future"}
    for case in cases({"norm": {"frank": component}}):
        if case.rule.name in about:
            case.check()


def test_every_check_is_seen_to_fail() -> None:
    # A model whose shape or dtype is wrong is refused by torch before the check sees it. Inductor is dynamo's test.
    checks = {check.name for kind in CHECKS if kind != "attention" for check in CHECKS[kind] if not check.slow}
    assert checks - {"shape_and_dtype"} <= {check for _, _, check, _ in BREAKS}


def test_any_exception_names_component_and_distribution(cases: Any) -> None:
    class Throws(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            raise KeyError("weights")

    (case,) = (case for case in cases({"norm": {"throws": Throws}}) if case.rule.name == "builds")
    with pytest.raises(ContractFailure, match=r"norm 'throws' of lab-parts 0\.3 .*KeyError: 'weights'"):
        case.check()
