"""Differential attention: its formula in float64, its size, and DiffLlama's of transformers."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import DiffLlamaConfig, DynamicCache
from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention, DiffLlamaRotaryEmbedding

import explorer
from explorer import Visible
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer_attentions.differential import DifferentialAttention
from explorer_attentions.mha import mha
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import (
    DIM,
    HEAD_DIM,
    HEADS,
    SITE,
    B,
    Block,
    S,
    T,
    dense,
    drawn,
    hidden,
    in_pieces,
    parameters,
    scattered,
    turn,
)

WIDTH, HALF = HEADS * HEAD_DIM, HEAD_DIM // 2
PLAIN = partial(RMSNorm, affine=False, eps=1e-5)


def differential(norm=RMSNorm, **block):
    return scattered(Block(**block).build(DifferentialAttention, norm=norm))


def written_out(attention, x, context=None, *, layer, window=None):
    """Head after head: the difference of two softmaxes, normed."""
    source = x if context is None else context
    maps = zip((x, source, source), attention.qkv.weight.split(WIDTH), attention.qkv.bias.split(WIDTH), strict=True)
    q, k, v = ((t @ weight.T + bias).unflatten(-1, (HEADS, HEAD_DIM)) for t, weight, bias in maps)
    (q_1, q_2), (k_1, k_2) = attention.lambda_q, attention.lambda_k
    start = 0.8 - 0.6 * math.exp(-0.3 * layer)
    difference = torch.exp(q_1 @ k_1) - torch.exp(q_2 @ k_2) + start
    visible = Visible(causal=context is None, window=window)

    def attended(head, half):
        q_half, k_half = (t[:, None, :, head, half * HALF : (half + 1) * HALF] for t in (q, k))
        if context is None:
            q_half, k_half = (turn(HALF).rotate(t, torch.arange(T)) for t in (q_half, k_half))
        return dense(q_half, k_half, v[:, None, :, head], visible)[:, 0]  # (B, T, head_dim)

    heads = [attended(head, 0) - difference * attended(head, 1) for head in range(HEADS)]
    heads = [y / (y.square().mean(-1, keepdim=True) + 1e-6).sqrt() * attention.norm.weight for y in heads]
    return (1 - start) * torch.cat(heads, dim=-1) @ attention.out.weight.T + attention.out.bias


@pytest.mark.parametrize("layer", [0, 1, 5])
@torch.no_grad()
def test_it_is_the_formula(layer):
    x, context = drawn(B, T, DIM).double(), drawn(B, S, DIM).double()
    exact = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-11)
    for window in (None, 3):
        ours = differential(site=replace(SITE, layer=layer), position=turn, window=window).double()
        expected = written_out(ours, x, layer=layer, window=window)
        exact(ours(x), expected)
        exact(in_pieces(ours, x, [2, 4]), expected)
    exact(ours(x, context=context), written_out(ours, x, context, layer=layer))


@pytest.mark.parametrize(("layer", "start"), [(0, 0.2), (1, 0.8 - 0.6 * 0.7408182206817179)])
def test_lambda_starts_by_depth_from_layer_zero(layer, start):
    ours = differential(site=replace(SITE, layer=layer))
    assert ours.lambda_start == pytest.approx(start)
    fresh = Block(head_dim=512).build(DifferentialAttention, norm=RMSNorm)
    for vectors in (fresh.lambda_q, fresh.lambda_k):
        assert vectors.std().item() == pytest.approx(0.1, rel=0.15)


def test_it_has_the_parameters_of_mha_and_three_vectors_of_a_head():
    """Half the heads, twice as wide, as the paper compares them: the projections are as large."""
    plain = Block(heads=2 * HEADS, head_dim=HALF).build(mha)
    assert parameters(differential()) - parameters(plain) == HEAD_DIM + 2 * HEAD_DIM


def test_products():
    """Scores of two halves are those of one head; both weightings read the whole value."""
    sizes = {"dim": DIM, "heads": HEADS, "head_dim": HEAD_DIM, "feedforward": "none", "norm": "none"}
    plan = explorer.load({**sizes, "attention": "differential"}).plan()
    cost = count(plan, [Workload("prefill", B, T, dtype="float32")]).costs[0]
    core = 2 * B * T * T * HEADS * 2 * (HALF + HEAD_DIM)
    assert cost.matmul_flops == B * T * 2 * 4 * DIM * WIDTH + core
    assert cost.matmul_flops_exact == B * T * 2 * 4 * DIM * WIDTH + core * (T + 1) // (2 * T)


def test_an_odd_head_is_refused():
    with pytest.raises(ValueError, match="head_dim 7 must be even: queries and keys are split into halves"):
        differential(head_dim=7)


@torch.no_grad()
def test_lambda_is_computed_in_float32():
    """Products of 0.1 summed in bfloat16, then their exponential, would be off by a percent."""
    ours = differential().to(torch.bfloat16)
    q, k = ours.lambda_q.double(), ours.lambda_k.double()
    first, second = (q * k).sum(-1).exp()
    assert ours._lambda().dtype == torch.float32
    assert ours._lambda().item() == pytest.approx(float(first - second) + ours.lambda_start, rel=1e-6)


def paired(theirs: torch.Tensor) -> torch.Tensor:
    """Rows of their 2 * HEADS heads, of which i and i + HEADS are the halves of ours."""
    return theirs.unflatten(0, (2, HEADS, HALF)).transpose(0, 1).flatten(0, 2)


@torch.no_grad()
def test_diffllama():
    """Prefill, then one step through either cache."""
    config = DiffLlamaConfig(
        hidden_size=DIM, num_attention_heads=2 * HEADS, num_key_value_heads=2 * HEADS, head_dim=HALF,
        rms_norm_eps=1e-5, attn_implementation="eager", attention_dropout=0.0, num_hidden_layers=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    theirs = DiffLlamaAttention(config, layer_idx=1)
    ours = differential(PLAIN, position=RoPE, bias=False, site=replace(SITE, layer=1))
    ours.qkv.weight.data = torch.cat([paired(p.weight) for p in (theirs.q_proj, theirs.k_proj, theirs.v_proj)])
    ours.out.load_state_dict(theirs.o_proj.state_dict())
    ours.lambda_q.data = torch.stack([theirs.lambda_q1, theirs.lambda_q2])
    ours.lambda_k.data = torch.stack([theirs.lambda_k1, theirs.lambda_k2])
    x, angles, past = drawn(B, T, DIM), DiffLlamaRotaryEmbedding(config), DynamicCache()
    first = theirs(x[:, :-1], angles(x, torch.arange(T - 1)[None]), hidden(T - 1, T - 1), cache=past)[0]
    step = theirs(x[:, -1:], angles(x, torch.arange(T - 1, T)[None]), hidden(1, T), cache=past)[0]
    expected = torch.cat([first, step], dim=1)
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(in_pieces(ours, x, [T - 1]), expected)
