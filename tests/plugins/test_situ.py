"""SiTU and SiTU-GLU against the formula of the Kimi K3 report in float64 and what follows from it."""

from __future__ import annotations

import pytest
import torch

from explorer_activations.silu import SiLU
from explorer_activations.situ import SiTU
from explorer_activations.situ_glu import SiTUGLU
from explorer_activations.swiglu import SwiGLU

gate, up = (6 * torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(s)).double() for s in (0, 1))
GATE_VALUES = {  # of the branch of the gate, to four digits
    -8: -0.0013, -6: -0.009, -4: -0.0548, -2: -0.2203, 0: 0.0, 2: 1.6281, 4: 2.9916, 6: 3.6116, 8: 3.8548,
}  # fmt: skip


def branch(x, beta):
    return beta * torch.tanh(x / beta) / (1 + (-x).exp())


@pytest.mark.parametrize("beta", [4.0, 1.5])
def test_situ_equals_its_formula(beta):
    torch.testing.assert_close(SiTU(beta=beta)(gate), branch(gate, beta))


@pytest.mark.parametrize(("beta", "linear_beta"), [(4.0, 25.0), (2.0, 3.0), (4.0, None)])
def test_situ_glu_equals_its_formula(beta, linear_beta):
    linear = up if linear_beta is None else linear_beta * torch.tanh(up / linear_beta)
    ours = SiTUGLU(beta=beta, linear_beta=linear_beta)(gate, up)
    torch.testing.assert_close(ours, branch(gate, beta) * linear)


def test_values_of_the_gate():
    x, values = (torch.tensor(list(t), dtype=torch.float64) for t in (GATE_VALUES, GATE_VALUES.values()))
    torch.testing.assert_close(SiTU()(x), values, rtol=0, atol=5e-5)
    # With an up-projection of which nothing is cut: SiTU-GLU is the gate's branch.
    torch.testing.assert_close(SiTUGLU(linear_beta=None)(x, torch.ones_like(x)), values, rtol=0, atol=5e-5)


@pytest.mark.parametrize(("activation", "least", "at"), [(SiTU(), -0.2698, -1.219), (SiLU(), -0.2785, -1.278)])
def test_minimum(activation, least, at):
    x = torch.linspace(-3, 0, 30_001, dtype=torch.float64)
    y = activation(x)
    torch.testing.assert_close(y.min().item(), least, rtol=0, atol=5e-5)
    torch.testing.assert_close(x[y.argmin()].item(), at, rtol=0, atol=1e-3)


def test_bound():
    """|y| <= beta linear_beta = 100."""
    far = torch.tensor([-1e4, -100.0, 0.0, 100.0, 1e4])
    y = SiTUGLU()(far[:, None].expand(5, 5), far)
    assert y.abs().max() <= 100
    torch.testing.assert_close(y.max().item(), 100.0)


def test_large_betas_give_swiglu():
    gaps = [(SiTUGLU(beta=b, linear_beta=b)(gate, up) - SwiGLU()(gate, up)).abs().max() for b in (1e2, 1e4, 1e6)]
    assert gaps[0] > 100 * gaps[1] > 100 * gaps[2]
    torch.testing.assert_close(SiTUGLU(beta=1e7, linear_beta=1e7)(gate, up), SwiGLU()(gate, up))


def test_difference_from_swiglu_near_zero():
    """g^2 / (3 beta^2) + u^2 / (3 linear_beta^2), relative."""
    g, u = (torch.tensor([value], dtype=torch.float64) for value in (0.02, 0.05))
    relative = 1 - SiTUGLU()(g, u) / SwiGLU()(g, u)
    torch.testing.assert_close(relative, g**2 / 48 + u**2 / 1875, rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_round_once_at_the_end(dtype):
    g, u = gate.to(dtype), up.to(dtype)
    torch.testing.assert_close(SiTU()(g), SiTU()(g.float()).to(dtype), rtol=0, atol=0)
    torch.testing.assert_close(SiTUGLU()(g, u), SiTUGLU()(g.float(), u.float()).to(dtype), rtol=0, atol=0)
