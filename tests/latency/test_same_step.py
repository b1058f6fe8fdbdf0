"""Two runs of a training step: gradients within rounding pass, whatever their parameters are called; others do not."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from explorer import build
from explorer.blueprint.workload import Workload
from explorer.latency import same_step
from explorer.latency.runner import Feed, ready
from explorer.latency.same_step import Run, compare_runs
from explorer.latency.twins import equal_moves, share_weights

DIM = 32


def step(module, dtype="float32"):
    workload = Workload("train", batch=2, tokens=64, dtype=dtype).settled()
    return ready(lambda *where: module, workload, Feed(DIM), device="cpu")


class Exact:
    """A step in float64, of inputs and with a result in the step's own dtype."""

    phase = "train"

    def __init__(self, module):
        self.module = module

    def result(self, forward, x, source):
        return forward(x.double(), source).to(x.dtype)


BLOCKS = {
    "keys with a bias": {"bias": True},  # its gradient is nothing but rounding
    "kinks": {"norm": "layernorm", "placement": "post", "activation": "relu"},
    "recurrent": {"attention": "gated_deltanet"},
    "experts": {"feedforward": {"moe": {"experts": 16, "top_k": 2, "hidden": 32}}},
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fields", BLOCKS.values(), ids=BLOCKS)
def test_the_roundings_of_a_backward_pass(fields, dtype):
    module, exact = (
        build({"dim": DIM, "heads": 4, "attention": "mha", **fields}, "block", device="cpu", dtype=each)
        for each in (dtype, torch.float64)
    )
    exact.load_state_dict(module.state_dict())
    found = compare_runs(Run(Exact(exact), exact), Run(step(module, dtype), module))
    assert found.ok
    assert found.error > 0


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(DIM) + 0.5)

    def forward(self, x, source=None):
        return x * self.gain


class LogGain(nn.Module):
    """The same with another parameter, in two parts and in another order; wrong by a share of its gradient."""

    same_as = "gain"

    def __init__(self, wrong):
        super().__init__()
        self.logs = nn.ParameterList(nn.Parameter(torch.zeros(DIM // 2)) for _ in "ab")
        self.wrong = wrong

    def load_from(self, other):
        for ours, theirs in zip(self.logs, other.gain.flip(0).chunk(2), strict=True):
            ours.copy_(theirs.log())

    def forward(self, x, source=None):
        gain = torch.cat(list(self.logs)).exp().flip(0)
        return x * (gain + self.wrong * (gain - gain.detach()))


@pytest.mark.parametrize("wrong", [0.0, 1e-4])
@pytest.mark.parametrize("turned", [False, True])
def test_parameters_of_another_form_have_the_same_slopes(wrong, turned):
    blocks = [LogGain(wrong), Gain()]
    if turned:
        blocks.reverse()
    share_weights(*blocks)
    runs = [Run(step(block), block, moves) for block, moves in zip(blocks, equal_moves(*blocks), strict=True)]
    assert compare_runs(*runs).ok is not bool(wrong)


def test_a_frozen_parameter_is_left_out():
    one, other = Gain(), Gain()
    share_weights(one, other)
    one.gain.requires_grad_(False)
    other.gain.requires_grad_(False)
    runs = [Run(step(block), block, moves) for block, moves in zip((one, other), equal_moves(one, other), strict=True)]
    assert compare_runs(*runs).ok


class Widest(TorchDispatchMode):
    """Looks for the largest tensor in float64 that is made."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dtype == torch.float64:
            self.most = max(self.most, made.numel())
        return made


@pytest.mark.parametrize("moves", [None, [torch.ones(40 * DIM, DIM), torch.ones(DIM, 40 * DIM)]])
def test_gradients_are_compared_piece_by_piece(monkeypatch, moves):
    """In float64 at once, those of a large layer would take several times what the layer does."""
    monkeypatch.setattr(same_step, "_PIECE", 100)
    module = nn.Sequential(nn.Linear(DIM, 40 * DIM, bias=False), nn.Linear(40 * DIM, DIM, bias=False))
    run = Run(step(module), lambda x, source: module(x), moves)
    with Widest() as seen:
        assert compare_runs(run, run).error == 0
    assert seen.most <= 2 * 64 * DIM < 40 * DIM * DIM  # results
