"""Feed-forward networks against torch's own linear maps with copied weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer import Width
from explorer_activations.gelu import GELU
from explorer_activations.swiglu import SwiGLU
from explorer_feedforwards import register_feedforwards
from explorer_feedforwards.dense import Dense
from explorer_feedforwards.latent_moe import latent_moe
from explorer_feedforwards.moe import moe

DIM, HIDDEN = 16, 24


@dataclass(frozen=True)
class Makes:
    """An activation maker, as a block hands it to a feed-forward."""

    make: Callable[[], nn.Module]
    inputs: int

    def __call__(self):
        return self.make()


PLAIN, GATED = Makes(GELU, 1), Makes(SwiGLU, 2)


def x():
    return torch.randn(2, 5, DIM, generator=torch.Generator().manual_seed(0))


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("bias", [True, False])
def test_plain_equals_torchs_sequential(bias):
    ours = Dense(DIM, PLAIN, bias, 0.0, hidden=Width(HIDDEN))
    theirs = nn.Sequential(nn.Linear(DIM, HIDDEN, bias=bias), nn.GELU(), nn.Linear(HIDDEN, DIM, bias=bias))
    theirs[0].load_state_dict(ours.up.state_dict())
    theirs[2].load_state_dict(ours.down.state_dict())
    torch.testing.assert_close(ours(x()), theirs(x()))


@pytest.mark.parametrize("bias", [True, False])
def test_gated_equals_three_separate_maps(bias):
    ours = Dense(DIM, GATED, bias, 0.0, hidden=Width(HIDDEN))
    gate, up = (nn.Linear(DIM, HIDDEN, bias=bias) for _ in range(2))
    for name, fused in ours.up.state_dict().items():
        gate.load_state_dict({name: fused[:HIDDEN]}, strict=False)
        up.load_state_dict({name: fused[HIDDEN:]}, strict=False)
    torch.testing.assert_close(ours(x()), ours.down(F.silu(gate(x())) * up(x())))


@pytest.mark.parametrize(
    ("dim", "activation", "hidden"),
    [(16, PLAIN, 64), (4096, PLAIN, 16384), (16, GATED, 64), (768, GATED, 2048), (4096, GATED, 10944)],
)
def test_default_width(dim, activation, hidden):
    with torch.device("meta"):
        assert Dense(dim, activation, False, 0.0).down.in_features == hidden


@pytest.mark.parametrize(
    ("dim", "activation", "hidden", "weights"),
    [(256, GATED, 512, 393_216), (256, PLAIN, 512, 262_144), (4096, GATED, 11008, 3 * 4096 * 11008)],
)
def test_a8_gated_has_three_matrices(dim, activation, hidden, weights):
    with torch.device("meta"):
        assert parameters(Dense(dim, activation, False, 0.0, hidden=Width(hidden))) == weights
        biased = Dense(dim, activation, True, 0.0, hidden=Width(hidden))
    assert parameters(biased) == weights + activation.inputs * hidden + dim


def test_dropout_acts_after_the_activation_in_training_only():
    ours = Dense(DIM, GATED, True, 1.0)
    torch.testing.assert_close(ours(x()), ours.down.bias.expand(2, 5, DIM))  # all hidden channels dropped
    same = Dense(DIM, GATED, True, 0.0)
    same.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours.eval()(x()), same(x()), rtol=0, atol=0)


@pytest.mark.parametrize(("activation", "inputs"), [(PLAIN, 1), (GATED, 2)])
def test_branch_weights_are_views_by_role(activation, inputs):
    ours = Dense(DIM, activation, True, 0.0, hidden=Width(HIDDEN))
    weights = ours.branch_weights()
    assert {role: [tuple(w.shape) for w in held] for role, held in weights.items()} == {
        "value": [],
        "input": [(HIDDEN, DIM)] * inputs,
        "output": [(DIM, HIDDEN)],
    }
    with torch.no_grad():
        for weight in weights["input"]:
            weight.zero_()
    assert not ours.up.weight.any()


def test_hook_lists_every_feedforward():
    assert register_feedforwards() == {"dense": Dense, "latent_moe": latent_moe, "moe": moe, "none": None}
