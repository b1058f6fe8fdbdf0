"""Norms against torch's own modules and the papers' formulas in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer_norms import register_norms
from explorer_norms.batchnorm import BatchNorm
from explorer_norms.dyt import DyT
from explorer_norms.l2norm import L2Norm
from explorer_norms.layernorm import LayerNorm
from explorer_norms.none import NoNorm
from explorer_norms.rmsnorm import RMSNorm
from explorer_norms.scalenorm import ScaleNorm

DIM = 16
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def with_weights(norm):
    """The norm with random parameters: at the start a gain of 1 would hide most mistakes."""
    for seed, parameter in enumerate(norm.parameters(), start=1):
        parameter.data = drawn(*parameter.shape, seed=seed)
    return norm


def rms(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def layer(x, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + eps).sqrt()


def unit(x, eps=1e-12):
    return x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)


NORMS = {  # ours, and the same in float64: x and its parameters -> y
    "layernorm": (LayerNorm(DIM), lambda x, w, b: layer(x, 1e-5) * w + b),
    "layernorm eps": (LayerNorm(DIM, eps=1e-2), lambda x, w, b: layer(x, 1e-2) * w + b),
    "layernorm without bias": (LayerNorm(DIM, bias=False), lambda x, w: layer(x, 1e-5) * w),
    "layernorm bare": (LayerNorm(DIM, affine=False), lambda x: layer(x, 1e-5)),
    "rmsnorm": (RMSNorm(DIM), lambda x, w: rms(x, 1e-6) * w),
    "rmsnorm eps": (RMSNorm(DIM, eps=1e-2), lambda x, w: rms(x, 1e-2) * w),
    "rmsnorm offset": (RMSNorm(DIM, offset=1.0), lambda x, w: rms(x, 1e-6) * (1 + w)),
    "rmsnorm gemma": (RMSNorm(DIM, offset=1.0, cast="gemma"), lambda x, w: rms(x, 1e-6) * (1 + w)),
    "rmsnorm bare": (RMSNorm(DIM, affine=False), lambda x: rms(x, 1e-6)),
    "l2norm": (L2Norm(DIM), unit),
    "l2norm eps": (L2Norm(DIM, eps=1e-2), lambda x: unit(x, 1e-2)),
    "l2norm scale": (L2Norm(DIM, scale="sqrt_dim"), lambda x: 4 * unit(x)),
    "l2norm affine": (L2Norm(DIM, scale="sqrt_dim", affine=True), lambda x, w: 4 * unit(x) * w),
    "scalenorm": (ScaleNorm(DIM), lambda x, g: g * unit(x, 1e-5)),
    "scalenorm eps": (ScaleNorm(DIM, eps=1e-2), lambda x, g: g * unit(x, 1e-2)),
    "dyt": (DyT(DIM), lambda x, a, w, b: w * (1 - 2 / ((2 * a * x).exp() + 1)) + b),
    "none": (NoNorm(), lambda x: x),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("size", [1.0, 1e-3], ids=["ordinary", "near eps"])
def test_norm_equals_its_formula_in_float64(name, size):
    ours, formula = NORMS[name]
    with_weights(ours)
    x = size * drawn(2, 5, DIM)
    expected = formula(x.double(), *(p.double() for p in ours.parameters()))
    torch.testing.assert_close(ours(x), expected.float())


@pytest.mark.parametrize(
    ("fresh", "bare"),
    [
        (LayerNorm(DIM), lambda x: layer(x, 1e-5)),
        (RMSNorm(DIM), lambda x: rms(x, 1e-6)),
        (RMSNorm(DIM, offset=1.0), lambda x: rms(x, 1e-6)),
        (RMSNorm(DIM, offset=-0.5, cast="gemma"), lambda x: rms(x, 1e-6)),
        (L2Norm(DIM, affine=True), unit),
        (ScaleNorm(DIM), lambda x: 4 * unit(x)),  # sqrt(16)
        (DyT(DIM), lambda x: torch.tanh(x / 2)),
        (DyT(DIM, init=0.75), lambda x: torch.tanh(0.75 * x)),
    ],
)
def test_start_values(fresh, bare):
    x = drawn(2, 5, DIM)
    torch.testing.assert_close(fresh(x), bare(x))


def test_norms_equal_torchs_modules():
    x = drawn(2, 5, DIM)
    for ours, theirs in [
        (LayerNorm(DIM), nn.LayerNorm(DIM)),
        (LayerNorm(DIM, bias=False, eps=1e-3), nn.LayerNorm(DIM, bias=False, eps=1e-3)),
        (RMSNorm(DIM), nn.RMSNorm(DIM, eps=1e-6)),
        (RMSNorm(DIM, cast="gemma", eps=1e-5), nn.RMSNorm(DIM, eps=1e-5)),
    ]:
        theirs.load_state_dict(with_weights(ours).state_dict())
        torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("size", [1.0, 1e-13], ids=["ordinary", "below eps"])
def test_l2norm_is_torchs_normalize(size):
    x = size * drawn(2, 5, DIM)
    torch.testing.assert_close(L2Norm(DIM)(x), F.normalize(x, dim=-1))


def test_l2norm_with_sqrt_dim_is_rmsnorm_without_eps():
    x = drawn(2, 5, DIM)
    torch.testing.assert_close(L2Norm(DIM, scale="sqrt_dim")(x), F.rms_norm(x, (DIM,), eps=0.0))


@pytest.mark.parametrize("norm", [L2Norm(DIM, affine=True), ScaleNorm(DIM)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vector_of_zeros_stays_one_without_nan(norm, dtype):
    x = torch.zeros(2, DIM, dtype=dtype, requires_grad=True)
    y = norm.to(dtype)(x)
    y.sum().backward()
    assert y.eq(0).all()
    assert not x.grad.isnan().any()  # 1 / eps, which float16 holds as infinite


def test_layernorm_is_rmsnorm_of_the_centred_vector():
    x = drawn(2, 5, DIM)
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(LayerNorm(DIM, affine=False, eps=1e-6)(x), RMSNorm(DIM, affine=False)(centred))


@pytest.mark.parametrize(
    ("norm", "parameters"),
    [
        (LayerNorm(DIM), 2 * DIM),
        (LayerNorm(DIM, bias=False), DIM),
        (LayerNorm(DIM, affine=False), 0),
        (RMSNorm(DIM), DIM),
        (RMSNorm(DIM, affine=False), 0),
        (L2Norm(DIM), 0),
        (L2Norm(DIM, affine=True), DIM),
        (ScaleNorm(DIM), 1),
        (DyT(DIM), 2 * DIM + 1),
        (BatchNorm(DIM), 2 * DIM),
        (NoNorm(), 0),
    ],
)
def test_number_of_parameters(norm, parameters):
    assert sum(p.numel() for p in norm.parameters()) == parameters


# Public case F1: where RMSNorm rounds, and in which dtype it takes its statistics.


@pytest.mark.parametrize(
    ("cast", "expected"),
    [("llama", [0.40234375, 0.94921875, 0.765625, 1.3125]), ("gemma", [0.40234375, 0.9453125, 0.765625, 1.3125])],
)
def test_f1_bfloat16_rounding(cast, expected):
    norm = RMSNorm(4, cast=cast).to(torch.bfloat16)
    norm.weight.data = torch.tensor([1.1, 1.3, 0.7, 0.9], dtype=torch.bfloat16)
    y = norm(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert y.tolist() == expected


@pytest.mark.parametrize("cast", ["llama", "gemma"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_f1_float16_statistics_do_not_overflow(cast, offset):
    norm = RMSNorm(8, cast=cast, offset=offset).to(torch.float16)
    assert norm(torch.full((8,), 300.0, dtype=torch.float16)).tolist() == [1.0] * 8  # 300^2 > 65504


@pytest.mark.parametrize("cast", ["llama", "gemma"])
@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_cast_is_its_authors_arithmetic_bit_for_bit(cast, offset, dtype):
    norm = with_weights(RMSNorm(DIM, cast=cast, offset=offset)).to(dtype)
    x, w = 3 * drawn(40, DIM, dtype=dtype), norm.weight
    x_hat = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    expected = {"llama": (offset + w) * x_hat.to(dtype), "gemma": (x_hat * (offset + w.float())).to(dtype)}
    torch.testing.assert_close(norm(x), expected[cast], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gemma_cast_is_torchs_fused_norm_bit_for_bit(dtype):
    norm = with_weights(RMSNorm(DIM, cast="gemma")).to(dtype)
    x = drawn(40, DIM, dtype=dtype)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (DIM,), norm.weight, 1e-6), rtol=0, atol=0)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", ["same", "float32"])
def test_output_has_the_dtype_of_the_input(name, dtype, weights):
    ours = NORMS[name][0].to(dtype if weights == "same" else torch.float32)
    y = ours(drawn(2, 5, DIM, dtype=dtype))
    assert y.dtype == dtype
    assert y.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(register_norms()))
def test_autocast_leaves_norms_alone(name, dtype):
    """Of a stream in float32 and of the output of a sublayer in bfloat16."""
    norm = with_weights(NORMS[name][0] if name in NORMS else BatchNorm(DIM)).float()
    results = []
    for on in (False, True):
        x = drawn(2, 5, DIM, dtype=dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            y = norm(x)
        assert y.dtype == dtype
        results.append([y, *torch.autograd.grad(y.float().square().sum(), [x, *norm.parameters()])])
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def test_hook_lists_every_norm():
    names = ["batchnorm", "dyt", "l2norm", "layernorm", "none", "rmsnorm", "scalenorm"]
    assert sorted(register_norms()) == names
