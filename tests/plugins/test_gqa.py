"""mha, gqa and mha_naive against torch's own module, the written-out formula in float64, and each other."""

from __future__ import annotations

from inspect import signature

import pytest
import torch
from torch import nn

from explorer import Position
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import DIM, HEAD_DIM, HEADS, B, Block, S, T, drawn, parameters

# mha against nn.MultiheadAttention


def torchs(ours, bias) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(DIM, HEADS, bias=bias, batch_first=True)
    theirs.in_proj_weight, theirs.out_proj = ours.qkv.weight, ours.out
    theirs.in_proj_bias = ours.qkv.bias
    return theirs.eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_mha_equals_torchs_self_attention(bias, causal):
    ours = Block(causal=causal, bias=bias, head_dim=DIM // HEADS).build(mha)
    x, blocked = drawn(B, T, DIM), torch.ones(T, T, dtype=torch.bool).triu(1)
    expected, _ = torchs(ours, bias)(x, x, x, attn_mask=blocked if causal else None, need_weights=False)
    torch.testing.assert_close(ours(x), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_mha_equals_torchs_cross_attention_with_padding(bias):
    ours = Block(bias=bias, head_dim=DIM // HEADS).build(mha)
    x, context = drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    padding = torch.arange(S) >= torch.tensor([[S], [3]])  # True = blocked, torch's polarity
    expected, _ = torchs(ours, bias)(x, context, context, key_padding_mask=padding, need_weights=False)
    torch.testing.assert_close(ours(x, context=context, mask=~padding[:, None, None, :]), expected)


# gqa against the formula, each key head repeated for its group


def written_out(attention, x, kv_heads, *, position, window=None):
    """Causal attention from separate projections, in float64."""
    q_rows, kv_rows = HEADS * HEAD_DIM, kv_heads * HEAD_DIM
    x, weight, bias = x.double(), attention.qkv.weight.double(), attention.qkv.bias.double()
    q, k, v = (
        (x @ w.T + b) for w, b in zip(*(t.split([q_rows, kv_rows, kv_rows]) for t in (weight, bias)), strict=True)
    )
    q, k, v = (t.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for t in (q, k, v))
    q, k = (position.rotate(t, torch.arange(x.shape[1])) for t in (q, k))
    k, v = (t.repeat_interleave(HEADS // kv_heads, dim=1) for t in (k, v))
    scores = q @ k.transpose(-2, -1) / HEAD_DIM**0.5
    i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])
    seen = (j <= i) & (j > i - (window or x.shape[1]))
    y = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2) @ attention.out.weight.double().T + attention.out.bias.double()


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("position", [NoPosition(), RoPE(HEAD_DIM)], ids=["none", "rope"])
@pytest.mark.parametrize("window", [None, 2])
def test_gqa_equals_the_formula(kv_heads, position, window):
    ours = Block(window=window, position=lambda head_dim: position).build(GroupedQueryAttention, kv_heads=kv_heads)
    x = drawn(B, T, DIM)
    expected = written_out(ours, x, kv_heads, position=position, window=window)
    torch.testing.assert_close(ours(x), expected.float(), rtol=1e-4, atol=1e-5)


def test_gqa_with_a_key_head_for_each_query_head_is_mha():
    x = drawn(B, T, DIM)
    for options in ({}, {"qk_norm": RMSNorm, "softcap": 3.0, "scale": 0.2}):
        block = Block(position=RoPE)
        ours, same = block.build(GroupedQueryAttention, kv_heads=HEADS, **options), block.build(mha, **options)
        torch.testing.assert_close(ours(x), same(x), rtol=0, atol=0)


def test_what_mha_and_gqa_share_has_the_same_names_types_and_defaults():
    grouped, plain = signature(GroupedQueryAttention).parameters, signature(mha).parameters
    assert [name for name in grouped if name != "kv_heads"] == list(plain)
    assert all(parameter == grouped[name] for name, parameter in plain.items())
    ours, theirs = (f.__doc__.split("\n\n")[-1].strip() for f in (mha, GroupedQueryAttention))
    assert ours == theirs


# mha_naive against mha


def map_weights(naive, fused) -> None:
    """W_qkv = [q of all heads | k | v], the heads one after the other."""
    projections = [*naive.q, *naive.k, *naive.v]
    fused.qkv.weight.data = torch.cat([p.weight for p in projections])
    if fused.qkv.bias is not None:
        fused.qkv.bias.data = torch.cat([p.bias for p in projections])
    fused.out.load_state_dict(naive.out.state_dict())


@pytest.mark.parametrize("bias", [True, False, "qkv", "out"])
def test_naive_equals_fused_with_mapped_weights(bias):
    block = Block(bias=bias, position=RoPE, window=3)
    naive, fused = block.build(NaiveMultiHeadAttention), block.build(mha)
    map_weights(naive, fused)
    assert parameters(naive) == parameters(fused)
    x, context = drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    per_head = drawn(B, HEADS, T, T, seed=3) > -1
    per_head[:, :, 1] = False  # public case F3: a query that sees nothing
    torch.testing.assert_close(naive(x), fused(x))
    torch.testing.assert_close(naive(x, mask=per_head), fused(x, mask=per_head))
    torch.testing.assert_close(naive(x, mask=per_head[0, 0]), fused(x, mask=per_head[0, 0]))
    torch.testing.assert_close(naive(x, context=context), fused(x, context=context))


class Distance(Position):
    """Another bias for each head: -head * |distance|, as ALiBi has it."""

    def bias(self, T, S, offset):
        places = torch.arange(S)
        return -torch.arange(HEADS)[:, None, None] * (places[S - T :, None] - places).abs().float()


def test_naive_gives_each_head_its_own_bias():
    block = Block(position=lambda head_dim: Distance())
    naive, fused, without = block.build(NaiveMultiHeadAttention), block.build(mha), Block().build(mha)
    map_weights(naive, fused)
    without.load_state_dict(fused.state_dict())
    x = drawn(B, T, DIM)
    torch.testing.assert_close(naive(x), fused(x))
    assert not torch.allclose(fused(x), without(x), atol=1e-3)


# Parameters, refusals


@pytest.mark.parametrize(("bias", "inner", "outer"), [(True, 1, 1), (False, 0, 0), ("qkv", 1, 0), ("out", 0, 1)])
def test_bias_is_on_the_maps_it_names(bias, inner, outer):
    width, kv_width = HEADS * HEAD_DIM, 2 * HEAD_DIM
    weights = 2 * DIM * width + 2 * DIM * kv_width
    ours = Block(bias=bias).build(GroupedQueryAttention, kv_heads=2)
    assert parameters(ours) == weights + inner * (width + 2 * kv_width) + outer * DIM


@pytest.mark.parametrize(("over", "expected"), [("head", 32 + 32), ("all", 4 * 32 + 2 * 32)])
def test_a5_explicit_head_dim_and_qk_norm(over, expected):
    ours = GroupedQueryAttention(
        96, 4, 32, True, None, False, lambda head_dim: NoPosition(), 0.0, kv_heads=2, qk_norm=RMSNorm, qk_norm_over=over
    )
    assert parameters(ours) == 2 * 96 * 128 + 2 * 96 * 64 + expected


def test_a4_large_key_and_value_projections_are_smaller():
    with torch.device("meta"):
        ours = GroupedQueryAttention(8192, 64, 128, True, None, False, lambda head_dim: NoPosition(), 0.0, kv_heads=8)
    assert parameters(ours) == 2 * 8192 * 8192 + 2 * 8192 * 8 * 128


def test_kv_heads_must_divide_heads():
    with pytest.raises(ValueError, match="heads 4 must divide by kv_heads 3"):
        Block().build(GroupedQueryAttention, kv_heads=3)
