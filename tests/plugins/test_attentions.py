"""What holds for every softmax attention: masks, caches, contexts, dtypes, compilation."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from explorer import Cache
from explorer_attentions import register_attentions
from explorer_attentions.differential import DifferentialAttention
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from explorer_attentions.mla import MultiheadLatentAttention
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions.learned import Learned
from explorer_positions.rope import RoPE
from tests.plugins.attention_blocks import (
    DIM,
    HEADS,
    B,
    Block,
    Dense,
    S,
    T,
    drawn,
    in_pieces,
    no_position,
    parameters,
    scattered,
    turn,
)

ATTENTIONS = {  # every softmax attention, with and without what it can be given
    "mha_naive": (NaiveMultiHeadAttention, {}),
    "mha": (mha, {}),
    "gqa": (GroupedQueryAttention, {"kv_heads": 2}),
    "mqa": (GroupedQueryAttention, {"kv_heads": 1, "softcap": 5.0}),
    "gqa, normed": (GroupedQueryAttention, {"kv_heads": 2, "qk_norm": RMSNorm}),
    "mha, all normed": (mha, {"qk_norm": RMSNorm, "qk_norm_over": "all", "scale": 0.3}),
    "gqa, all options": (
        GroupedQueryAttention,
        {
            "kv_heads": 2, "scale": "learned", "softcap": 5.0, "sinks": True, "gate": True,
            "qk_norm": RMSNorm, "qk_norm_over": "each_head", "qk_norm_after_position": True,
        },
    ),
    "mla": (MultiheadLatentAttention, {"kv_rank": 3, "rope_dim": 4, "norm": RMSNorm}),
    "mla, all options": (
        MultiheadLatentAttention,
        {
            "q_rank": 6, "kv_rank": 40, "rope_dim": 2, "nope_dim": 10, "value_dim": 12, "scale": 0.3, "gate": True,
            "norm": RMSNorm,
        },
    ),
    "differential": (DifferentialAttention, {"norm": RMSNorm}),
}  # fmt: skip
each_attention = pytest.mark.parametrize("name", ATTENTIONS)


def built(name, **block) -> nn.Module:
    constructor, parameters = ATTENTIONS[name]
    return Block(**block).build(constructor, **parameters)


# Parameters


@each_attention
def test_a_position_belongs_to_the_stack(name):
    table = Learned(DIM, max_tokens=4)
    assert parameters(built(name, position=lambda head_dim: table)) == parameters(built(name))


@each_attention
def test_branch_weights_are_views_of_value_and_output(name):
    ours, x = built(name, bias="out"), drawn(B, T, DIM)
    weights = ours.branch_weights()
    assert not torch.allclose(ours(x), ours.out.bias.expand(B, T, DIM), atol=1e-3)
    if name == "differential":  # the norm behind its values takes any scale out again
        assert weights["value"] == []
    else:
        with torch.no_grad():
            for weight in weights["value"]:
                assert weight.ndim == 2
                weight.zero_()
        torch.testing.assert_close(ours(x), ours.out.bias.expand(B, T, DIM))
    assert weights["input"] == []
    assert [w.data_ptr() for w in weights["output"]] == [ours.out.weight.data_ptr()]


@each_attention
@torch.no_grad()
def test_no_tokens_give_none_and_leave_the_cache_alone(name):
    for window in (None, 3):
        ours, x = built(name, position=turn, window=window), drawn(B, T, DIM)
        cache, nothing = Cache(1, batch=B, capacity=T), x[:, :0]
        for piece in x.split([3, 1, 1], dim=1):
            held = cache.held()
            assert ours(nothing, cache=cache.views[0]).shape == ours(nothing).shape == nothing.shape
            assert cache.held() == held
            start = cache.offset
            came = ours(piece, cache=cache.views[0])
            cache.advance(piece.shape[1])
            torch.testing.assert_close(came, ours(x)[:, start : cache.offset])


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
        ours, x = built(name, window=window, position=RoPE), drawn(B, T, DIM)
        for cuts in ([4], [3], [2, 3, 4]):
            torch.testing.assert_close(in_pieces(ours, x, cuts), ours(x))


@each_attention
def test_f9_the_future_is_hidden_and_true_means_may_attend(name):
    ours, x = built(name), drawn(B, T, DIM)
    changed = torch.cat([x[:, :-1], x[:, -1:] + 1], dim=1)
    torch.testing.assert_close(ours(changed)[:, :-1], ours(x)[:, :-1], rtol=0, atol=0)
    open_to_all = built(name, causal=False)
    keep = torch.ones(T, T, dtype=torch.bool).tril()
    torch.testing.assert_close(open_to_all(x, mask=keep), ours(x))
    assert not torch.allclose(open_to_all(changed)[:, :-1], open_to_all(x)[:, :-1], atol=1e-3)


MASKS = [(), (S,), (T, S), (B, 1, 1, S), (B, 1, T, S), (HEADS, T, S), (B, HEADS, T, S)]


@each_attention
@settings(max_examples=15)
@given(
    shape=st.sampled_from(MASKS),
    kept=st.sampled_from([0.0, 0.3, 0.7]),
    causal=st.booleans(),
    window=st.sampled_from([None, 1, 3]),
    across=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_mask_gives_what_numbers_for_all_pairs_give(name, shape, kept, causal, window, across, seed):
    """T tokens after S - T in a cache, or over a context of S, against the same in float64 with a dense core."""
    ours = scattered(built(name, causal=causal, window=window, position=turn))
    exact = copy.deepcopy(ours).double()
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < kept if shape else None
    x, context = drawn(B, S, DIM, seed=seed).requires_grad_(), drawn(B, S, DIM, seed=seed + 1)
    y = last(ours, x, context if across else None, mask)
    with Dense(), torch.no_grad():
        expected = last(exact, x.double(), context.double() if across else None, mask)
    torch.testing.assert_close(y, expected.float(), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in (x, *ours.parameters()))


def last(attention, x, context, mask) -> torch.Tensor:
    """What it says of the last T tokens of x (B, S, dim)."""
    if context is not None:
        return attention(x[:, -T:], context=context, mask=mask)
    cache = Cache(1, batch=B, capacity=S)
    with torch.no_grad():
        attention(x[:, :-T], cache=cache.views[0])
    cache.advance(S - T)
    return attention(x[:, -T:], mask=mask, cache=cache.views[0])


# Cache, context


@each_attention
def test_a_context_is_read_whole_and_without_position(name):
    plain, x, context = built(name, causal=False), drawn(B, T, DIM), drawn(B, S, DIM, seed=2)
    with_all = built(name, window=2, position=RoPE)
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
    ours = built(name, position=RoPE).to(dtype)
    y = ours(drawn(B, T, DIM).to(dtype))
    assert y.dtype == dtype
    (y.float() * drawn(B, T, DIM, seed=4)).sum().backward()
    assert [n for n, p in ours.named_parameters() if p.grad is None or not p.grad.any()] == []


@each_attention
def test_runs_on_meta(name):
    ours, x = built(name, position=lambda width: RoPE(width).to("meta")).to("meta"), drawn(B, T, DIM).to("meta")
    assert ours(x).shape == ours(x, context=drawn(B, S, DIM).to("meta")).shape == (B, T, DIM)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# The others compile in the contract suite, which takes every component with its defaults.
@pytest.mark.parametrize(
    ("name", "position"),
    [("gqa, all options", partial(RoPE, dims=4, pairing="interleaved")), ("mla, all options", no_position)],
    ids=["gqa", "mla"],
)
@torch.no_grad()
def test_compiles_whole(name, position, fresh_compiler):
    """Two prefill shapes and one cached step in one compiled object, without a graph break."""
    ours, x = built(name, position=position), drawn(B, T, DIM)
    compiled = torch.compile(ours, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), ours(x))
    torch.testing.assert_close(compiled(x[:, :3]), ours(x[:, :3]))
    torch.testing.assert_close(in_pieces(compiled, x, [4]), ours(x))


def test_hook_lists_every_attention():
    names = ["csa", "differential", "gated_deltanet", "gqa", "hca", "kda", "linear", "mha", "mha_naive", "mla", "none"]
    assert sorted(register_attentions()) == names
    assert register_attentions()["none"] is None
