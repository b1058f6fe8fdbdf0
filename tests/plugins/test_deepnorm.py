"""DeepNorm against the numbers of its paper, and the weights that its beta starts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from explorer import Site
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from explorer_positions.none import NoPosition
from explorer_residuals.deepnorm import DeepNorm

DIM = 16


def site(stack, encoder_layers, decoder_layers):
    layers = encoder_layers if stack == "encoder" else decoder_layers
    return Site(
        index=0,
        total=2 * layers,
        sublayer=0,
        sublayers=2,
        layer=0,
        layers=layers,
        stack=stack,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
    )


DEEP = site("decoder", 0, 8)  # alpha = 16^(1/4) = 2


def test_update_equals_its_formula():
    x, y = torch.randn(2, 2, 5, DIM, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(DeepNorm(DEEP).write(x, y), 2 * x + y)


def test_f10_a_silent_sublayer_leaves_the_stream_alone():
    x = torch.randn(2, 5, DIM, generator=torch.Generator().manual_seed(0))
    norm = nn.LayerNorm(DIM, eps=1e-12)
    torch.testing.assert_close(norm(DeepNorm(DEEP).write(x, torch.zeros_like(x))), norm(x))


# The paper's three rows; the numbers are those of a separate calculation of them.
ALPHA_BETA = [
    (site("encoder", 12, 0), 2.213364, 0.319472),
    (site("decoder", 0, 12), 2.213364, 0.319472),
    (site("encoder", 6, 6), 1.417938, 0.496989),
    (site("decoder", 6, 6), 2.059767, 0.343295),
    (site("encoder", 100, 100), 3.415742, 0.206310),
    (site("decoder", 100, 100), 4.161791, 0.169904),
    (site("encoder", 500, 500), 5.648240, 0.124765),
    (site("decoder", 500, 500), 6.223330, 0.113622),
    (site("encoder", 18, 6), 0.81 * (18**4 * 6) ** (1 / 16), 0.87 * (18**4 * 6) ** (-1 / 16)),
    (site("decoder", 18, 6), 18**0.25, 72**-0.25),
]


@pytest.mark.parametrize(("place", "alpha", "beta"), ALPHA_BETA)
def test_deepnorm_coefficients(place, alpha, beta):
    ours = DeepNorm(place)
    assert (ours.alpha, ours.beta) == pytest.approx((alpha, beta), abs=5e-7)


def test_deepnorm_is_defined_for_post_norm_only():
    assert DeepNorm.placements == ("post",)


def test_deepnorm_scales_value_and_output_but_not_query_and_key():
    torch.manual_seed(0)
    dim, residual = 128, DeepNorm(DEEP)
    attention = mha(dim, 4, dim // 4, True, None, False, lambda head_dim: NoPosition(), 0.0)
    before = attention.qkv.weight.detach().clone()
    residual.init_branch(attention.branch_weights())
    torch.testing.assert_close(attention.qkv.weight[: 2 * dim], before[: 2 * dim], rtol=0, atol=0)
    xavier = residual.beta * math.sqrt(2 / (dim + dim))
    for weight in (attention.qkv.weight[2 * dim :], attention.out.weight):
        assert weight.std().item() == pytest.approx(xavier, rel=0.05)  # 16384 draws: a standard error of 0.6 %


@pytest.mark.parametrize("make", [mha, NaiveMultiHeadAttention])
def test_deepnorm_starts_an_attention_alike_however_it_is_split_into_heads(make):
    torch.manual_seed(0)
    dim, residual = 128, DeepNorm(DEEP)
    attention = make(dim, 4, dim // 4, True, None, False, lambda head_dim: NoPosition(), 0.0)
    residual.init_branch(attention.branch_weights())
    values = torch.cat(attention.branch_weights()["value"])
    assert values.shape == (dim, dim)
    assert values.std().item() == pytest.approx(residual.beta * math.sqrt(2 / (dim + dim)), rel=0.03)


def test_deepnorm_scales_feedforward_weights():
    torch.manual_seed(0)
    residual = DeepNorm(DEEP)
    gate, up, down = torch.empty(256, 128), torch.empty(256, 128), torch.empty(128, 256)
    residual.init_branch({"value": [], "input": [gate, up], "output": [down]})
    for weight in (gate, up, down):
        assert weight.std().item() == pytest.approx(residual.beta * math.sqrt(2 / (128 + 256)), rel=0.05)
