"""Hyper-connections against the paper's formulas step by step in float64, their start and their cost."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import explorer
from explorer_residuals.hyper_connections import HyperConnections
from tests.plugins.residual_stacks import (
    DIM,
    PRE,
    added_params,
    branches,
    drawn,
    flops_per_dim,
    model_of,
    random_model,
    residuals,
    site,
)

STATIC = {"hyper_connections": {"dynamic": False}}
DYNAMIC = {"hyper_connections": {}}


def hyper_connected(model, x):
    """Equations of the paper, one token at a time: H is (n, dim)."""
    *sites, _ = residuals(model)
    H = torch.stack([x] * sites[0].streams)
    for residual, branch in zip(sites, branches(model), strict=True):
        A, B = residual.alpha, residual.beta
        if residual.dynamic:
            normed = torch.stack([F.layer_norm(row, (DIM,), residual.norm.weight, residual.norm.bias) for row in H])
            W = residual.weight.T  # (dim, n + 2)
            A = A + residual.alpha_scale * torch.tanh(normed @ W[:, :-1])
            B = B + residual.beta_scale * torch.tanh(normed @ W[:, -1])
        A_m, A_r = A[:, :1], A[:, 1:]
        h = (A_m.T @ H)[0]
        y = branch(h[None, None])[0, 0]
        H = A_r.T @ H + torch.outer(B, y)
    return model.stack.final_norm(H.sum(0))


def test_parameters_that_stay_float32():
    names = {"alpha", "beta", "alpha_scale", "beta_scale"}
    for residual in (HyperConnections(DIM, site(1)).to(torch.bfloat16), next(residuals(half_model()))):
        wide = {name for name, parameter in residual.named_parameters() if parameter.dtype == torch.float32}
        assert wide == names
        torch.testing.assert_close(residual.alpha_scale.data, torch.tensor(0.01), rtol=0, atol=0)
    assert {came.dtype for came in residual.coefficients(drawn(2, 5, 4, DIM).bfloat16())} == {torch.float32}


def half_model():
    return explorer.build({**PRE, "residual": DYNAMIC}, device="cpu", dtype="bfloat16")


def test_small_dynamic_parts_are_kept_in_bfloat16():
    """0.01 tanh beside A = 1, where bfloat16 has steps of 0.0078: against float64 with the same rounded weights."""
    ours = HyperConnections(DIM, site(0))
    with torch.no_grad():
        ours.weight.copy_(drawn(6, DIM, seed=1))
    ours = ours.to(torch.bfloat16)
    exact = HyperConnections(DIM, site(0)).double()
    exact.load_state_dict(ours.state_dict())
    H = drawn(8, 16, 4, DIM).bfloat16()
    for came, wanted in zip(ours.coefficients(H), exact.coefficients(H.double()), strict=True):
        torch.testing.assert_close(
            came.double(), wanted, rtol=0, atol=3e-4
        )  # of 0.01: the norm and the product are bfloat16
    # Without an output of the sublayer what is written is A_r^T H: no worse than rounding the exact one twice.
    h, state = ours.read(H)
    written = ours.write(state, torch.zeros_like(h))
    exact_h, state = exact.read(H.double())
    wanted = exact.write(state, torch.zeros_like(exact_h))
    assert written.dtype == h.dtype == torch.bfloat16
    assert error(written, wanted) < 1.5 * error(wanted.bfloat16(), wanted)
    assert error(h, exact_h) < 2.5 * error(exact_h.bfloat16(), exact_h)


def error(came, wanted):
    return (came.double() - wanted).abs().mean().item()


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("dynamic", [False, True])
def test_stack_equals_the_formula(streams, dynamic):
    model = random_model({"hyper_connections": {"streams": streams, "dynamic": dynamic}})
    x = drawn(3, 1, DIM).double()  # one token each: attention sees itself only
    wanted = torch.stack([hyper_connected(model, row) for row in x[:, 0]])
    torch.testing.assert_close(model(x)[:, 0], wanted)


@pytest.mark.parametrize("placement", ["pre", "sandwich", "res_post"])
@pytest.mark.parametrize("residual", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_start_equals_the_plain_residual(residual, placement):
    """Exactly the same streams; the norm behind the stack takes their number out again."""
    plain, ours = model_of("add", placement=placement), model_of(residual, placement=placement)
    ours.load_state_dict(plain.state_dict(), strict=False)
    x = drawn(2, 5, DIM)
    torch.testing.assert_close(ours(x), plain(x))


def test_each_stream_starts_as_the_plain_residual():
    model, x = model_of(DYNAMIC), drawn(2, 5, DIM)
    *sites, _ = residuals(model)
    state, stream = sites[0].enter(x), x
    for residual, branch in zip(sites, branches(model), strict=True):
        h, state = residual.read(state)
        state = residual.write(state, branch(h))
        stream = stream + branch(stream)
        torch.testing.assert_close(state, stream.unsqueeze(-2).expand_as(state))


def test_streams_live_from_the_embedding_to_the_end():
    """A stream that no site reads before the end comes out as it went in: nothing collapses in between."""
    model, x = model_of(STATIC), drawn(2, 5, DIM)
    *sites, leave = residuals(model)
    with torch.no_grad():
        for residual in sites:
            residual.alpha[:, 0] = torch.tensor([0.0, 1.0, 0.0, 0.0])
            residual.beta[0] = 0
    state = sites[0].enter(x)
    for residual, branch in zip(sites, branches(model), strict=True):
        h, state = residual.read(state)
        state = residual.write(state, branch(h))
    torch.testing.assert_close(state[..., 0, :], x, rtol=0, atol=0)
    assert not torch.equal(state[..., 1, :], x)
    torch.testing.assert_close(leave.leave(state), state.sum(-2))


def test_start_by_site():
    for index in range(6):
        residual = HyperConnections(DIM, site(index), streams=4)
        assert residual.alpha[:, 0].argmax().item() == index % 4
        torch.testing.assert_close(residual.alpha[:, 1:], torch.eye(4))
        torch.testing.assert_close(residual.alpha[:, 0].sum(), torch.tensor(1.0))
        torch.testing.assert_close(residual.beta, torch.ones(4))
        assert residual.weight.abs().max().item() == 0
        assert residual.alpha_scale.item() == residual.beta_scale.item() == pytest.approx(0.01)


@pytest.mark.parametrize(("n", "d"), [(1, 64), (2, 64), (4, 64), (4, 4096)])
def test_parameters(n, d):
    """n (n + 2) static; d (n + 2) + 2 and the LayerNorm's 2d with the dynamic part. None at the end."""
    static = n * (n + 2)
    dynamic = static + d * (n + 2) + 2 + 2 * d
    for is_dynamic, wanted in ((False, static), (True, dynamic)):
        chosen = {"hyper_connections": {"streams": n, "dynamic": is_dynamic}}
        assert added_params(chosen, dim=d, heads=1, layers=3) == (2 * wanted, 6 * wanted)


def test_a_static_site_of_four_streams_has_24_parameters():
    assert added_params(STATIC, layers=1) == (48, 48)


@pytest.mark.parametrize("n", [2, 4])
def test_flops(n):
    """2 n (n + 1) d for A, 2 n (n + 2) d to make A and B; B^T y is an outer product: no matmul. Train: three times."""
    mix, make = 2 * n * (n + 1), 2 * n * (n + 2)
    static = {"hyper_connections": {"streams": n, "dynamic": False}}
    dynamic = {"hyper_connections": {"streams": n}}
    assert flops_per_dim(static) == {"block": 2 * mix, "model": 6 * mix}
    assert flops_per_dim(dynamic) == {"block": 2 * (mix + make), "model": 6 * (mix + make)}
    assert flops_per_dim(dynamic, "train")["model"] == 3 * 6 * (mix + make)


def test_no_placement_post():
    with pytest.raises(Exception, match="is defined for placement pre, sandwich, res_post, none, not post"):
        model_of(DYNAMIC, placement="post")
