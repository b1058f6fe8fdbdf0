"""Scale, soft cap, sinks and gate of mha and gqa against their formulas in float64 and against transformers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers import GptOssConfig, Qwen3NextConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention, GptOssRotaryEmbedding
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention, Qwen3NextRotaryEmbedding

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_norms.l2norm import L2Norm
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import (
    DIM,
    HEAD_DIM,
    HEADS,
    B,
    Block,
    S,
    T,
    drawn,
    hidden,
    parameters,
    scattered,
    sees,
    turn,
)

WIDTH, KV_HEADS = HEADS * HEAD_DIM, 2
OPTIONS = {
    "plain": {},
    "number": {"scale": 0.25},
    "learned": {"scale": "learned"},
    "cap": {"softcap": 0.5},
    "sinks": {"sinks": True},
    "gate": {"gate": True},
    "all": {"scale": "learned", "softcap": 2.0, "sinks": True, "gate": True},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def gqa(block, **options):
    return scattered(block.build(GroupedQueryAttention, kv_heads=KV_HEADS, **options)).double()


def written_out(attention, x, context=None, *, scale=None, softcap=None, sinks=False, gate=False):
    """One head after the other, one query after the other, in float64."""
    context, own = x if context is None else context, context is None
    cuts = [WIDTH * gate, WIDTH, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
    maps = zip(attention.qkv.weight.split(cuts), attention.qkv.bias.split(cuts), (x, x, context, context), strict=True)
    g, q, k, v = (y @ w.T + b for w, b, y in maps)
    q, k, v = (t.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for t in (q, k, v))
    if own:
        q, k = (turn(HEAD_DIM).rotate(t, torch.arange(x.shape[1])) for t in (q, k))
    factor = attention.learned_scale if scale == "learned" else scale or HEAD_DIM**-0.5
    seen = sees(own, None, x.shape[1], context.shape[1])
    heads = []
    for head in range(HEADS):
        k_head, v_head = k[:, head // (HEADS // KV_HEADS)], v[:, head // (HEADS // KV_HEADS)]
        rows = []
        for i in range(x.shape[1]):
            scores = torch.einsum("bd,bsd->bs", q[:, head, i], k_head[:, seen[i]]) * factor
            weights = (scores if softcap is None else softcap * torch.tanh(scores / softcap)).exp()
            total = weights.sum(-1, keepdim=True) + (attention.sinks[head].exp() if sinks else 0)
            rows.append(torch.einsum("bs,bsd->bd", weights / total, v_head[:, seen[i]]))
        heads.append(torch.stack(rows, dim=1))
    y = torch.cat(heads, dim=-1)
    y = y / (1 + (-g).exp()) if gate else y
    return y @ attention.out.weight.T + attention.out.bias


@each_option
@torch.no_grad()
def test_options_are_their_formulas(options):
    ours, x, context = gqa(Block(position=turn), **options), drawn(B, T, DIM).double(), drawn(B, S, DIM).double()
    torch.testing.assert_close(ours(x), written_out(ours, x, **options), rtol=1e-10, atol=1e-12)
    expected = written_out(ours, x, context, **options)
    torch.testing.assert_close(ours(x, context=context), expected, rtol=1e-10, atol=1e-12)


@each_option
def test_options_add_their_parameters(options):
    plain, ours = (parameters(gqa(Block(bias=False), **chosen)) for chosen in ({}, options))
    added = (options.get("scale") == "learned") + HEADS * ("sinks" in options) + DIM * WIDTH * ("gate" in options)
    assert ours - plain == added


def test_a_gate_costs_its_products_and_nothing_else_does():
    def flops(**options):
        fields = {
            "dim": DIM,
            "heads": HEADS,
            "head_dim": HEAD_DIM,
            "attention": {"mha": options},
            "feedforward": "none",
        }
        cost, *_ = count(explorer.load(fields).plan(), [Workload("prefill", B, T, dtype="float32")]).costs
        assert cost.incomplete == ()
        return cost.matmul_flops

    assert flops(gate=True) - flops() == B * T * 2 * DIM * WIDTH
    assert flops(sinks=True, softcap=5.0, scale="learned", qk_norm="l2norm") == flops()


@torch.no_grad()
def test_a_learned_scale_starts_at_the_logits_of_rms_norms():
    """sqrt(head_dim) q k / (|q| |k|) = q^ k^ / sqrt(head_dim) with q^, k^ of unit mean square."""
    learned = Block(position=RoPE).build(mha, scale="learned", qk_norm=L2Norm)
    fixed = Block(position=RoPE).build(mha, qk_norm=partial(RMSNorm, affine=False, eps=1e-12))
    assert learned.learned_scale.item() == pytest.approx(HEAD_DIM**0.5)
    fixed.load_state_dict({name: value for name, value in learned.state_dict().items() if name != "learned_scale"})
    torch.testing.assert_close(learned(drawn(B, T, DIM)), fixed(drawn(B, T, DIM)))


# transformers with copied weights

SIZES = {
    "hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
    "attention_bias": True, "attn_implementation": "eager",
}  # fmt: skip


def fused(theirs, *first):
    """Their projections as our one; `first` is what stands before k and v, if not q alone."""
    q, k, v = ((map.weight, map.bias) for map in (theirs.q_proj, theirs.k_proj, theirs.v_proj))
    weights, biases = zip(*(first or [q]), k, v, strict=True)
    return {
        "qkv.weight": torch.cat(weights), "qkv.bias": torch.cat(biases),
        "out.weight": theirs.o_proj.weight, "out.bias": theirs.o_proj.bias,
    }  # fmt: skip


@torch.no_grad()
def test_sinks_are_those_of_gpt_oss():
    config = GptOssConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    theirs = GptOssAttention(config, 1)
    theirs.sinks.data = drawn(HEADS)
    ours = Block(position=RoPE).build(GroupedQueryAttention, kv_heads=KV_HEADS, sinks=True)
    ours.load_state_dict({**fused(theirs), "sinks": theirs.sinks})
    x = drawn(B, T, DIM)
    angles = GptOssRotaryEmbedding(config)(x, torch.arange(T)[None])
    torch.testing.assert_close(ours(x), theirs(x, angles, hidden(T, T))[0])


@torch.no_grad()
def test_the_gate_is_that_of_qwen3_next():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    config = Qwen3NextConfig(**SIZES, rope_parameters=rope)
    theirs = scattered(Qwen3NextAttention(config, 0))
    norm = partial(RMSNorm, offset=1.0, cast="gemma")
    block = Block(position=partial(RoPE, dims=HEAD_DIM // 2))
    ours = block.build(GroupedQueryAttention, kv_heads=KV_HEADS, gate=True, qk_norm=norm)
    # Theirs has q and gate side by side for each head.
    weight, bias = (t.unflatten(0, (HEADS, 2, HEAD_DIM)) for t in (theirs.q_proj.weight, theirs.q_proj.bias))
    q, gate = ((weight[:, i].flatten(0, 1), bias[:, i].flatten()) for i in (0, 1))
    norms = {"q_norm.weight": theirs.q_norm.weight, "k_norm.weight": theirs.k_norm.weight}
    ours.load_state_dict({**fused(theirs, gate, q), **norms})
    x = drawn(B, T, DIM)
    angles = Qwen3NextRotaryEmbedding(config)(x, torch.arange(T)[None])
    torch.testing.assert_close(ours(x), theirs(x, angles, hidden(T, T))[0])
