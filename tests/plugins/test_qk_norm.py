"""The QK-norms of published models: parameters, formulas in float64, and transformers with copied weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CohereConfig, NanoChatConfig
from transformers.models.cohere.modeling_cohere import CohereAttention, CohereRotaryEmbedding
from transformers.models.nanochat.modeling_nanochat import NanoChatAttention, NanoChatRotaryEmbedding

import explorer
from explorer import Visible
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_norms.l2norm import L2Norm
from explorer_norms.layernorm import LayerNorm
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import (
    DIM,
    HEAD_DIM,
    HEADS,
    B,
    Block,
    Recorder,
    T,
    dense,
    drawn,
    hidden,
    parameters,
    scattered,
    turn,
)

KV_HEADS = 2


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def standardised(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def unit(x: Tensor) -> Tensor:
    return x / x.square().sum(-1, keepdim=True).sqrt()


@dataclass(frozen=True)
class Variant:
    """adds: parameters of q's and k's norms. hat: the norm without gain. offset: of its gain."""

    options: dict[str, Any]
    adds: int
    hat: Any
    offset: float = 0.0
    whole: bool = False
    after: bool = False


EACH, BOTH = 2 * HEAD_DIM, (HEADS + KV_HEADS) * HEAD_DIM
VARIANTS = {
    "Henry et al. 2020": Variant({"qk_norm": L2Norm, "scale": "learned"}, 1, unit),
    "ViT-22B": Variant({"qk_norm": partial(LayerNorm, bias=False)}, EACH, standardised),
    "Qwen 3": Variant({"qk_norm": RMSNorm}, EACH, rms),
    "Gemma 3": Variant({"qk_norm": partial(RMSNorm, offset=1.0, cast="gemma")}, EACH, rms, offset=1.0),
    "OLMo 2": Variant({"qk_norm": RMSNorm, "qk_norm_over": "all"}, BOTH, rms, whole=True),
    "Cohere": Variant({"qk_norm": partial(LayerNorm, bias=False), "qk_norm_over": "each_head"}, BOTH, standardised),
    "Chameleon": Variant({"qk_norm": LayerNorm, "qk_norm_over": "each_head"}, 2 * BOTH, standardised),
    "Llama 4": Variant({"qk_norm": partial(RMSNorm, affine=False), "qk_norm_after_position": True}, 0, rms, after=True),
    "Qwen 3, after": Variant({"qk_norm": RMSNorm, "qk_norm_after_position": True}, EACH, rms, after=True),
    "OLMo 2, after": Variant(
        {"qk_norm": RMSNorm, "qk_norm_over": "all", "qk_norm_after_position": True}, BOTH, rms, whole=True, after=True
    ),
}
each_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def gqa(position=turn, **options):
    return Block(bias=False, position=position).build(GroupedQueryAttention, kv_heads=KV_HEADS, **options)


def normed(variant: Variant, norm: torch.nn.Module, x: Tensor) -> Tensor:
    """x (B, T, heads, head_dim) with the norm's numbers, put in the shape (heads, head_dim) or (head_dim,)."""
    gains = [p for name, p in norm.named_parameters() if name.endswith("weight")]
    shifts = [p for name, p in norm.named_parameters() if name.endswith("bias")]
    heads = x.shape[2:] if sum(g.numel() for g in gains) > HEAD_DIM else (HEAD_DIM,)
    y = variant.hat(x.flatten(2)).view_as(x) if variant.whole else variant.hat(x)
    y = y * (torch.cat(gains).view(heads) + variant.offset) if gains else y
    return y + torch.cat(shifts).view(heads) if shifts else y


@each_variant
@torch.no_grad()
def test_variants_are_their_formulas(variant):
    ours, x = scattered(gqa(**variant.options)).double(), drawn(B, T, DIM).double()
    cuts = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
    q, k, v = ((x @ w.T).unflatten(-1, (-1, HEAD_DIM)) for w in ours.qkv.weight.split(cuts))

    def rotated(t):
        return turn(HEAD_DIM).rotate(t.transpose(1, 2), torch.arange(T)).transpose(1, 2)

    if variant.after:
        q, k = normed(variant, ours.q_norm, rotated(q)), normed(variant, ours.k_norm, rotated(k))
    else:
        q, k = rotated(normed(variant, ours.q_norm, q)), rotated(normed(variant, ours.k_norm, k))
    scale = ours.learned_scale.item() if "scale" in variant.options else None
    y = dense(*(t.transpose(1, 2) for t in (q, k, v)), Visible(causal=True), scale=scale)
    expected = y.transpose(1, 2).flatten(2) @ ours.out.weight.T
    torch.testing.assert_close(ours(x), expected, rtol=1e-9, atol=1e-11)


@each_variant
def test_variants_have_their_parameters(variant):
    assert parameters(gqa(**variant.options)) - parameters(gqa()) == variant.adds


def test_the_order_changes_neither_parameters_nor_flops():
    def counted(**options):
        sizes = {"dim": DIM, "heads": HEADS, "head_dim": HEAD_DIM, "feedforward": "none"}
        attention = {"mha": {"qk_norm": "rmsnorm", **options}}
        plan = explorer.load({**sizes, "attention": attention}).plan()
        counts = count(plan, [Workload("prefill", B, T, dtype="float32")])
        return counts.params.block, counts.costs[0].matmul_flops

    assert counted(qk_norm_after_position=True) == counted()


# Public case F6


@pytest.mark.parametrize(
    ("after", "expected"),
    [(False, [-0.489925, 0.664251, -2.143200, 2.211810]), (True, [-0.258042, 0.686157, -2.065905, 2.222763])],
    ids=["norm then rope", "rope then norm"],
)
@torch.no_grad()
def test_f6_the_cache_holds_keys_as_normed_and_rotated(after, expected):
    cache = Recorder(offset=3)
    ours = Block(dim=4, heads=1, head_dim=4, window=2, bias=False, position=RoPE).build(
        mha, qk_norm=RMSNorm, qk_norm_after_position=after
    )
    ours.qkv.weight.data = torch.eye(4).repeat(3, 1)
    ours.k_norm.weight.data = torch.tensor([0.5, 1.0, 2.0, 1.5])
    ours(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), cache=cache)
    torch.testing.assert_close(cache.given["k"].flatten(), torch.tensor(expected), rtol=0, atol=1e-6)
    torch.testing.assert_close(cache.given["v"].flatten(), torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert cache.given["window"] == 2


@torch.no_grad()
def test_f6_a_gain_that_is_the_same_for_all_channels_commutes_with_the_rotation():
    before, after = (gqa(RoPE, qk_norm=RMSNorm, qk_norm_after_position=after) for after in (False, True))
    x = drawn(B, T, DIM)
    for uniform in (True, False):
        for norm in (before.q_norm, before.k_norm, after.q_norm, after.k_norm):
            norm.weight.data = torch.full((HEAD_DIM,), 1.5) if uniform else drawn(HEAD_DIM)
        assert torch.allclose(before(x), after(x), atol=1e-5) == uniform


# transformers with copied weights

SIZES = {
    "hidden_size": DIM, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
    "attention_bias": False, "attn_implementation": "eager",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip


@torch.no_grad()
def test_cohere():
    config = CohereConfig(**SIZES, use_qk_norm=True)
    theirs = CohereAttention(config, 0)
    theirs.q_norm.weight.data, theirs.k_norm.weight.data = drawn(HEADS, HEAD_DIM), drawn(KV_HEADS, HEAD_DIM, seed=2)
    ours = gqa(partial(RoPE, pairing="interleaved"), **VARIANTS["Cohere"].options)
    ours.qkv.weight.data = torch.cat([theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight])
    ours.out.load_state_dict(theirs.o_proj.state_dict())
    for mine, their in ((ours.q_norm, theirs.q_norm), (ours.k_norm, theirs.k_norm)):
        for norm, weight in zip(mine.norms, their.weight, strict=True):
            norm.weight.data = weight
    x = drawn(B, T, DIM)
    angles = CohereRotaryEmbedding(config)(x, torch.arange(T)[None])
    torch.testing.assert_close(ours(x), theirs(x, angles, hidden(T, T))[0])


@torch.no_grad()
def test_nanochat():
    """It turns the other way round, which is ours with the halves of each head of q and k exchanged."""
    config = NanoChatConfig(**SIZES, rms_norm_eps=1e-6)
    theirs = NanoChatAttention(config, 0)
    ours = gqa(RoPE, **VARIANTS["Llama 4"].options)

    def exchanged(projection):
        return projection.weight.unflatten(0, (-1, 2, HEAD_DIM // 2)).flip(1).flatten(0, 2)

    ours.qkv.weight.data = torch.cat([exchanged(theirs.q_proj), exchanged(theirs.k_proj), theirs.v_proj.weight])
    ours.out.load_state_dict(theirs.o_proj.state_dict())
    x = drawn(B, T, DIM)
    angles = NanoChatRotaryEmbedding(config)(x, torch.arange(T)[None])
    torch.testing.assert_close(ours(x), theirs(x, angles, hidden(T, T))[0])
