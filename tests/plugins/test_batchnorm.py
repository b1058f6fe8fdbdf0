"""BatchNorm, the counter-example: torch's own module over all tokens of all samples."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from explorer_norms.batchnorm import BatchNorm

DIM = 16


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def pair(**options):
    """Ours and torch's with the same random weights."""
    ours, theirs = BatchNorm(DIM, **options), nn.BatchNorm1d(DIM, **options)
    ours.weight.data, ours.bias.data = drawn(DIM, seed=1), drawn(DIM, seed=2)
    theirs.load_state_dict(ours.state_dict(), strict=False)  # it also counts the batches
    return ours, theirs


@pytest.mark.parametrize("options", [{}, {"eps": 1e-2, "momentum": 0.3}])
@pytest.mark.parametrize("shape", [(5, DIM), (2, 5, DIM), (2, 4, 5, DIM)], ids=str)
def test_equals_torchs_module_over_three_batches_and_in_evaluation(options, shape):
    ours, theirs = pair(**options)
    for seed in range(3):
        x = 1 + 2 * drawn(*shape, seed=seed)
        torch.testing.assert_close(ours(x), theirs(x.view(-1, DIM)).view(shape))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.view(-1, DIM)).view(shape))


def test_equals_its_formula_in_float64():
    ours, _ = pair()
    x = drawn(2, 5, DIM).double()
    mean, var = x.mean((0, 1)), x.var((0, 1), correction=0)
    expected = (x - mean) / (var + 1e-5).sqrt() * ours.weight.double() + ours.bias.double()
    torch.testing.assert_close(ours(x.float()), expected.float())


def test_training_leaks_later_tokens_and_other_samples_and_evaluation_does_not():
    norm, x = BatchNorm(DIM), drawn(2, 5, DIM)
    later, other = x.clone(), x.clone()
    later[0, -1] += 3
    other[1] += 3
    for changed in (later, other):
        assert not torch.equal(norm(changed)[0, 0], norm(x)[0, 0])
    norm.eval()
    for changed in (later, other):
        torch.testing.assert_close(norm(changed)[0, 0], norm(x)[0, 0], rtol=0, atol=0)
    assert "later tokens and other samples" in BatchNorm.leaks


def test_one_token_gives_the_bias_and_leaves_the_running_averages():
    """Its variance is 0; torch's module refuses it."""
    norm, _ = pair()
    kept = {name: value.clone() for name, value in norm.named_buffers()}
    torch.testing.assert_close(norm(drawn(DIM)), norm.bias.detach(), rtol=0, atol=1e-4)
    for name, value in norm.named_buffers():
        torch.testing.assert_close(value, kept[name], rtol=0, atol=0)


def test_evaluation_writes_nothing():
    norm = BatchNorm(DIM).eval()
    norm(1 + drawn(2, 5, DIM))
    assert norm.running_mean.eq(0).all()
    assert norm.running_var.eq(1).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_narrow_dtypes_keep_float32_averages(dtype, weights):
    norm = BatchNorm(DIM).to(dtype if weights == "same" else torch.float32)
    norm.running_mean.fill_(0.1)
    y = norm.to(norm.weight.dtype)(300 * drawn(2, 5, DIM).to(dtype))  # float16 cannot hold the mean of the squares
    assert y.dtype == dtype
    assert y.isfinite().all()
    assert norm.running_mean.dtype == norm.running_var.dtype == torch.float32
    assert norm.running_var.isfinite().all()
    assert norm.double().running_mean.dtype == torch.float64


@pytest.mark.parametrize("made", ["so", "moved", "narrower"])
def test_float64_remembers_as_torchs_module(made):
    """Running averages that are cast for the computation are still those that move."""
    ours, theirs = pair()
    if made == "so":
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            ours = BatchNorm(DIM)
        finally:
            torch.set_default_dtype(before)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    ours, theirs = ours if made == "narrower" else ours.double(), theirs.double()
    for seed in range(3):
        x = 1 + 2 * drawn(2, 5, DIM, seed=seed).double()
        ours(x), theirs(x.view(-1, DIM))
    close = {"rtol": 1e-6, "atol": 1e-6} if made == "narrower" else {}
    assert ours.running_mean.dtype == (torch.float32 if made == "narrower" else torch.float64)
    torch.testing.assert_close(ours.running_mean.double(), theirs.running_mean, **close)
    torch.testing.assert_close(ours.running_var.double(), theirs.running_var, **close)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.view(-1, DIM)).view(x.shape), **close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_change_of_dtype_does_not_round_the_averages(dtype):
    norm = BatchNorm(DIM)
    norm.running_var.fill_(1e6)  # beyond float16
    norm.running_mean.fill_(1.0001)
    norm.to(dtype)
    torch.testing.assert_close(norm.running_var, torch.full((DIM,), 1e6), rtol=0, atol=0)
    torch.testing.assert_close(norm.running_mean, torch.full((DIM,), 1.0001), rtol=0, atol=0)


def test_runs_on_meta_in_training_with_gradients():
    norm = BatchNorm(DIM).to("meta")
    x = torch.empty(2, 5, DIM, device="meta", requires_grad=True)
    norm(x).sum().backward()
    assert x.grad.shape == x.shape
    assert norm.weight.grad.shape == (DIM,)
