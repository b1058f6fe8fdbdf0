"""`csa` and `hca` through a cache, compiled, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer import Cache, Visible
from explorer.blueprint.workload import Workload
from explorer.cost.counting import count
from explorer_attentions.indexer import newest_of_the_best
from explorer_attentions.selected import RawAndCompressed
from tests.plugins.compressed import (
    DIM,
    HEAD_DIM,
    HEADS,
    LAYERS,
    WINDOW,
    B,
    built,
    drawn,
    each_cut,
    each_layer,
    in_pieces,
    plan,
)

# The cache


@each_layer
@pytest.mark.parametrize("window", [None, 1, 4])
@each_cut
def test_pieces_through_the_cache_equal_one_pass(name: str, window: int | None, cut: Sequence[int]) -> None:
    module, x = built(name, window), drawn(B, 23, DIM)
    torch.testing.assert_close(in_pieces(module, x, cut), module(x))


@each_layer
def test_memory_is_a_window_compressed_entries_and_constant_states(name: str) -> None:
    module, T = built(name), 23
    cache = Cache(1, batch=B, capacity=100, dtype=torch.bfloat16)
    with torch.no_grad():
        module(drawn(B, T, DIM), cache=cache.views[0])
    held = cache.held()
    index, ratio = 8 if name == "csa" else 0, {"csa": 2, "hca": 3}.get(name)
    entries = T // ratio if ratio else 0
    assert held.tokens == B * 2 * (WINDOW * HEAD_DIM + entries * (HEAD_DIM + index))
    # values and gates of the open window; of two series also of the window before
    open_ = {"csa": 2 * 2 * 4 * (HEAD_DIM + index), "hca": 3 * 2 * HEAD_DIM}.get(name, 0)
    assert held.states == B * 4 * open_


@torch.no_grad()
def test_a_step_can_be_repeated() -> None:
    for name in LAYERS:
        module, x = built(name), drawn(B, 23, DIM)
        cache = Cache(1, batch=B, capacity=23)
        view = cache.views[0]
        for token in range(23):
            rewind = cache.timing_mark()
            first = module(x[:, token : token + 1], cache=view)
            rewind()
            torch.testing.assert_close(module(x[:, token : token + 1], cache=view), first)
            cache.advance(1)


@each_layer
@torch.no_grad()
def test_no_tokens_give_none_and_leave_the_cache_alone(name: str) -> None:
    module, x = built(name), drawn(B, 9, DIM)
    nothing, cache = x[:, :0], Cache(1, batch=B, capacity=9)
    assert module(nothing).shape == nothing.shape
    assert module(nothing, mask=torch.ones(0, 0, dtype=torch.bool)).shape == nothing.shape
    for piece in (x[:, :7], x[:, 7:8], x[:, 8:]):
        held = cache.held()
        assert module(nothing, cache=cache.views[0]).shape == nothing.shape
        assert cache.held() == held
        start = cache.offset
        came = module(piece, cache=cache.views[0])
        cache.advance(piece.shape[1])
        torch.testing.assert_close(came, module(x)[:, start : cache.offset])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ratio", "window", "prefill"),
    [
        ("csa", 4, 6, 1),
        ("csa", 2, None, 3),
        ("hca", 8, 3, 9),
        ("hca", 3, 5, 40),
        ("sliding", None, 6, 2),
    ],
)
def test_steps_of_any_place_share_few_graphs(name: str, ratio: int | None, window: int | None, prefill: int) -> None:
    """Within dynamo's limit: where a step stands, in an entry or in a window, is no reason to compile it again."""
    module = built(name, window, ratio=ratio, **({"index_heads": 2} if name == "csa" else {}))
    steps = 3 * (ratio or 0) + 2 * (window or 0) + 20
    x = drawn(B, prefill + steps, DIM)
    torch.compiler.reset()
    try:  # aot_eager asks of views where in their storage they begin, as inductor does
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(in_pieces(compiled, x, (prefill,) + (1,) * steps), module(x))
    finally:
        torch.compiler.reset()


# Which entries are chosen


@given(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1e-30, 2.0, float("-inf")]), min_size=1, max_size=9), st.data())
@settings(deadline=None)
def test_of_equal_scores_the_newest_are_chosen(scores: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(scores)))
    came = newest_of_the_best(torch.tensor(scores), count).tolist()
    assert sorted(came) == sorted(sorted(range(len(scores)), key=lambda i: (scores[i], i))[len(scores) - count :])


@pytest.mark.parametrize("index_heads", [1, 2])
@pytest.mark.parametrize("padded", [False, True])
@each_cut
@torch.no_grad()
def test_equal_scores_choose_the_same_entries_in_pieces(index_heads: int, padded: bool, cut: Sequence[int]) -> None:
    """Of two index heads a quarter of all scores is exactly 0. In float64 another choice would show."""
    module, x = built("csa", index_heads=index_heads, index_top_k=2).double(), drawn(B, 23, DIM).double()
    mask = torch.ones(B, 1, 23, 23, dtype=torch.bool)
    mask[1, ..., :6] = not padded
    came, whole = in_pieces(module, x, cut, mask), module(x, mask=mask)
    torch.testing.assert_close(came, whole, rtol=1e-5, atol=1e-6)  # RoPE rotates in float32


# Counts


@settings(deadline=None)
@given(
    st.integers(1, 12),
    st.integers(0, 20),
    st.integers(1, 5),
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 6),
)
def test_the_number_of_pairs_is_what_the_mask_keeps(
    T: int, offset: int, ratio: int, window: int | None, top_k: int | None
) -> None:
    entries = (offset + T) // ratio
    rule = RawAndCompressed(Visible(True, window), ratio, offset, entries)
    kept = offset if window is None else min(offset, window - 1)
    S = kept + T + entries
    if top_k is not None:
        scores = torch.rand(1, T, entries).masked_fill(~rule.complete(T), float("-inf"))
        rule = rule.choosing(scores.topk(min(top_k, entries)).indices, top_k)
    mask = rule.mask(T, S).expand(1, 1, T, S)
    assert rule.pairs(T, S) == mask.sum().item()
    assert not rule.everything(T, S) or bool(mask.all())


def test_products_of_a_text_and_of_a_step() -> None:
    """csa without latent and groups: linear maps, the indexer's products, and 4 pairs head_dim heads in the core."""
    T, held, ratio, top, n, w = 10, 12, 2, 3, 16, 8
    own = {"csa": {"ratio": ratio, "index_heads": n, "index_dim": w, "index_top_k": top}}
    linear = (HEADS + 1) * HEAD_DIM + HEADS * HEAD_DIM + 4 * HEAD_DIM + n * w + n + 4 * w  # outputs a token, times DIM

    def counted(workload: Workload) -> tuple[int | None, int | None]:
        cost = count(plan(own), [workload]).costs[-1]
        return cost.matmul_flops, cost.matmul_flops_exact

    E = T // ratio
    flops, index = 2 * T * DIM * linear, 2 * n * (w + 1)
    raw = sum(min(t + 1, WINDOW) for t in range(T))
    pairs = raw + sum(min((t + 1) // ratio, top) for t in range(T))
    core = 4 * HEADS * HEAD_DIM
    complete = sum((t + 1) // ratio for t in range(T))
    dense = flops + index * T * E + core * T * (T + E)
    assert counted(Workload("prefill", 1, T)) == (dense, flops + index * complete + core * pairs)
    E = (held + 1) // ratio
    step = 2 * DIM * linear + index * E + core * (WINDOW + top)
    assert counted(Workload("decode", 1, context=held + 1)) == (step, step)  # a step reads what it chose


def test_training_leaves_the_indexer_alone() -> None:
    module = built("csa").train()
    module(drawn(B, 23, DIM)).sum().backward()
    without = {name for name, parameter in module.named_parameters() if parameter.grad is None}
    assert without == {name for name, _ in module.named_parameters() if name.startswith("indexer.")}
    assert list(module.idle_parameters) == ["indexer"]
    assert built("hca").idle_parameters == {}
