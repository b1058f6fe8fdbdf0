"""Attentions against torch's own module, the written-out formula in float64, and each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from explorer import Cache, Position
from explorer_attentions import register_attentions
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.learned import Learned
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE

DIM, HEADS, HEAD_DIM, B, T, S = 16, 4, 6, 2, 5, 7  # heads * head_dim is not dim
NO_POSITION = NoPosition()


@dataclass(frozen=True)
class Block:
    """What a block gives to its attention."""

    causal: bool = True
    window: int | None = None
    bias: bool | str = True
    position: Any = NO_POSITION
    head_dim: int = HEAD_DIM
    dropout: float = 0.0

    def build(self, constructor, **parameters) -> nn.Module:
        torch.manual_seed(0)
        menu = (DIM, HEADS, self.head_dim, self.causal, self.window, self.bias, lambda head_dim: self.position)
        return constructor(*menu, self.dropout, **parameters)


@dataclass
class Recorder:
    """A cache that holds nothing and keeps what it was given."""

    offset: int = 0
    holds_source: bool = False
    given: dict[str, Any] = field(default_factory=dict)

    def extend(self, *, window=None, **tensors) -> tuple[torch.Tensor, ...]:
        self.given = {"window": window, **tensors}
        return tuple(tensors.values())


ATTENTIONS = {  # every attention, with and without what it can be given
    "mha_naive": (NaiveMultiHeadAttention, {}),
    "mha": (mha, {}),
    "gqa": (GroupedQueryAttention, {"kv_heads": 2}),
    "mqa": (GroupedQueryAttention, {"kv_heads": 1, "softcap": 5.0}),
    "gqa, normed": (GroupedQueryAttention, {"kv_heads": 2, "qk_norm": RMSNorm}),
    "mha, all normed": (mha, {"qk_norm": RMSNorm, "qk_norm_over": "all", "scale": 0.3}),
}
each_attention = pytest.mark.parametrize("name", ATTENTIONS)


def built(name, **block):
    constructor, parameters = ATTENTIONS[name]
    return Block(**block).build(constructor, **parameters).eval()


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters(module) -> int:
    return sum(p.numel() for p in module.parameters())


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


def written_out(attention, x, kv_heads, *, position, window=None, scale=None, softcap=None, over="head"):
    """Causal attention from separate projections, in float64."""
    q_rows, kv_rows = HEADS * HEAD_DIM, kv_heads * HEAD_DIM
    x, weight, bias = x.double(), attention.qkv.weight.double(), attention.qkv.bias.double()
    q, k, v = (
        (x @ w.T + b) for w, b in zip(*(t.split([q_rows, kv_rows, kv_rows]) for t in (weight, bias)), strict=True)
    )
    q, k = normed(attention.q_norm, q, over), normed(attention.k_norm, k, over)
    q, k, v = (t.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for t in (q, k, v))
    q, k = (position.rotate(t, torch.arange(x.shape[1])) for t in (q, k))
    k, v = (t.repeat_interleave(HEADS // kv_heads, dim=1) for t in (k, v))
    scores = q @ k.transpose(-2, -1) * (scale or HEAD_DIM**-0.5)
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])
    seen = (j <= i) & (j > i - (window or x.shape[1]))
    y = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
    return y.transpose(1, 2).flatten(2) @ attention.out.weight.double().T + attention.out.bias.double()


def normed(norm, x, over):
    if isinstance(norm, nn.Identity):
        return x
    groups = x.unflatten(-1, (-1, HEAD_DIM)) if over == "head" else x
    y = groups / (groups.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight.double()
    return y.flatten(2)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("position", [NoPosition(), RoPE(HEAD_DIM)], ids=["none", "rope"])
@pytest.mark.parametrize(
    "options",
    [{}, {"scale": 0.25}, {"softcap": 0.5}, {"over": "head"}, {"over": "all"}, {"window": 2}],
    ids=["plain", "scale", "softcap", "head norm", "all norm", "window"],
)
def test_gqa_equals_the_formula(kv_heads, position, options):
    own = {name: options[name] for name in ("scale", "softcap") if name in options}
    if "over" in options:
        own.update(qk_norm=RMSNorm, qk_norm_over=options["over"])
    block = Block(window=options.get("window"), position=position)
    ours = block.build(GroupedQueryAttention, kv_heads=kv_heads, **own)
    for norm in (ours.q_norm, ours.k_norm):
        for weight in norm.parameters():
            weight.data = drawn(*weight.shape, seed=3)
    x = drawn(B, T, DIM)
    expected = written_out(ours, x, kv_heads, position=position, **options)
    torch.testing.assert_close(ours(x), expected.float(), rtol=1e-4, atol=1e-5)


def test_gqa_with_a_key_head_for_each_query_head_is_mha():
    x = drawn(B, T, DIM)
    for options in ({}, {"qk_norm": RMSNorm, "softcap": 3.0, "scale": 0.2}):
        block = Block(position=RoPE(HEAD_DIM))
        ours, same = block.build(GroupedQueryAttention, kv_heads=HEADS, **options), block.build(mha, **options)
        torch.testing.assert_close(ours(x), same(x), rtol=0, atol=0)


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
    block = Block(bias=bias, position=RoPE(HEAD_DIM), window=3)
    naive, fused = block.build(NaiveMultiHeadAttention), block.build(mha)
    map_weights(naive, fused)
    assert parameters(naive) == parameters(fused)
    x, context = drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    per_head = drawn(B, HEADS, T, T, seed=3) > -1
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
    block = Block(position=Distance())
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


@each_attention
def test_a_position_belongs_to_the_stack(name):
    table = Learned(DIM, max_tokens=4)
    assert parameters(built(name, position=table)) == parameters(built(name))


@each_attention
def test_branch_weights_are_views_of_value_and_output(name):
    ours = built(name)
    weights = ours.branch_weights()
    with torch.no_grad():
        for weight in weights["value"]:
            weight.zero_()
    x = drawn(B, T, DIM)
    bias = torch.cat([v.bias for v in ours.v]) if name == "mha_naive" else ours.qkv.bias[-ours.kv_width :]
    values = bias.view(-1, HEAD_DIM).repeat_interleave(HEADS * HEAD_DIM // bias.numel(), dim=0).flatten()
    torch.testing.assert_close(ours(x), ours.out(values).expand(B, T, DIM))  # values are their bias: the mean is too
    assert weights["input"] == []
    assert [w.data_ptr() for w in weights["output"]] == [ours.out.weight.data_ptr()]


# Masks: public cases F3, F4, F9


@each_attention
def test_f3_a_row_that_sees_nothing_is_zero_with_finite_gradients(name):
    ours, x = built(name, causal=False), drawn(B, 3, DIM).requires_grad_()
    mask = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    y = ours(x, mask=mask)
    torch.testing.assert_close(y[:, 1], ours.out.bias.expand(B, DIM))
    torch.testing.assert_close(y[:, 2], ours(x)[:, 2])
    torch.testing.assert_close(y[:, :1], ours(x[:, :1]))
    y.sum().backward()
    assert all(p.grad.isfinite().all() for p in [x, *ours.parameters()])


@each_attention
def test_f4_cached_queries_see_what_they_see_in_the_whole(name):
    for window in (None, 3):
        ours, x = built(name, window=window, position=RoPE(HEAD_DIM)), drawn(B, T, DIM)
        for cuts in ([4], [3], [2, 3, 4]):
            torch.testing.assert_close(in_pieces(ours, x, cuts), ours(x))


@torch.no_grad()
def in_pieces(attention, x, cuts) -> torch.Tensor:
    cache, outputs = Cache(1, batch=B, capacity=T), []
    for piece in x.tensor_split(cuts, dim=1):
        outputs.append(attention(piece, cache=cache.views[0]))
        cache.advance(piece.shape[1])
    return torch.cat(outputs, dim=1)


@each_attention
def test_f9_the_future_is_hidden_and_true_means_may_attend(name):
    ours, x = built(name), drawn(B, T, DIM)
    changed = torch.cat([x[:, :-1], x[:, -1:] + 1], dim=1)
    torch.testing.assert_close(ours(changed)[:, :-1], ours(x)[:, :-1], rtol=0, atol=0)
    open_to_all = built(name, causal=False)
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    torch.testing.assert_close(open_to_all(x, mask=keep), ours(x))
    assert not torch.allclose(open_to_all(changed)[:, :-1], open_to_all(x)[:, :-1], atol=1e-3)


# Cache, context


def test_f6_the_cache_gets_keys_normed_then_rotated():
    rope, cache = RoPE(HEAD_DIM), Recorder(offset=3)
    ours = Block(position=rope, window=4).build(GroupedQueryAttention, kv_heads=2, qk_norm=RMSNorm)
    ours.k_norm.weight.data = drawn(HEAD_DIM)
    x = drawn(B, T, DIM)
    ours(x, cache=cache)
    k = ours.qkv(x).split([HEADS * HEAD_DIM, 2 * HEAD_DIM, 2 * HEAD_DIM], dim=-1)[1]
    k = ours.k_norm(k.unflatten(-1, (2, HEAD_DIM))).transpose(1, 2)
    torch.testing.assert_close(cache.given["k"], rope.rotate(k, torch.arange(3, 3 + T)))
    assert cache.given["v"].shape == (B, 2, T, HEAD_DIM)
    assert cache.given["window"] == 4


@each_attention
def test_a_context_is_read_whole_and_without_position(name):
    plain, x, context = built(name, causal=False), drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    with_all = built(name, window=2, position=RoPE(HEAD_DIM))
    torch.testing.assert_close(with_all(x, context=context), plain(x, context=context), rtol=0, atol=0)


@each_attention
def test_keys_of_a_context_are_made_once(name):
    ours, x, context = built(name), drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    view = Cache(1, batch=B, capacity=T).views[0]
    with torch.no_grad():
        first = ours(x, context=context, cache=view)
        later = ours(x[:, :1], cache=view)
        empty = ours(x[:, :1], context=context[:, :0], cache=view)
    torch.testing.assert_close(first, ours(x, context=context))
    torch.testing.assert_close(later, first[:, :1])
    torch.testing.assert_close(empty, first[:, :1])


# Modes, dtypes, devices, compilation


@each_attention
def test_dropout_acts_in_training_only(name):
    ours, x = built(name, dropout=0.5), drawn(B, T, DIM)
    torch.testing.assert_close(ours(x), built(name)(x), rtol=0, atol=0)
    ours.train()
    assert not torch.equal(ours(x), ours(x))


@each_attention
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtype_is_kept_and_gradients_reach_every_parameter(name, dtype):
    ours = built(name, position=RoPE(HEAD_DIM)).to(dtype)
    y = ours(drawn(B, T, DIM).to(dtype))
    assert y.dtype == dtype
    (y.float() * drawn(B, T, DIM, seed=4)).sum().backward()
    assert [n for n, p in ours.named_parameters() if p.grad is None or not p.grad.any()] == []


@each_attention
def test_runs_on_meta(name):
    rope = RoPE(HEAD_DIM).to("meta")
    ours, x = built(name, position=rope).to("meta"), drawn(B, T, DIM).to("meta")
    assert ours(x).shape == ours(x, context=drawn(B, S, DIM).to("meta")).shape == (B, T, DIM)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# The others compile in the contract suite, which takes every component with its defaults.
@pytest.mark.parametrize("name", ["gqa, normed"])
@torch.no_grad()
def test_compiles_whole(name, fresh_compiler):
    """Two prefill shapes and one cached step in one compiled object, without a graph break."""
    ours, x = built(name, position=RoPE(HEAD_DIM, dims=4, pairing="interleaved")), drawn(B, T, DIM)
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), ours(x))
    torch.testing.assert_close(compiled(x[:, :3]), ours(x[:, :3]))
    torch.testing.assert_close(in_pieces(compiled, x, [4]), ours(x))


def test_hook_lists_every_attention():
    assert sorted(register_attentions()) == ["gqa", "mha", "mha_naive", "none"]
    assert register_attentions()["none"] is None
