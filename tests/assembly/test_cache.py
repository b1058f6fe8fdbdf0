"""The cache against a plain list of everything it was given."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.assembly.cache import Cache
from explorer.errors import UsageError

B, HEADS, WIDTH = 2, 3, 4


def entries(count, first=0):
    """(B, HEADS, count, WIDTH), entry i filled with first + i."""
    return torch.arange(first, first + count, dtype=torch.float32)[:, None].expand(B, HEADS, count, WIDTH)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.none() | st.integers(1, 6))
def test_extend_returns_what_the_queries_may_see_and_keeps_the_window(steps, window):
    cache = Cache(1, batch=B, capacity=sum(steps))
    given_so_far = 0
    for T in steps:
        (seen,) = cache.views[0].extend(k=entries(T, given_so_far), window=window)
        given_so_far += T
        cache.advance(T)
        visible = given_so_far if window is None else min(given_so_far, window + T - 1)
        torch.testing.assert_close(seen, entries(visible, given_so_far - visible))
        kept = given_so_far if window is None else min(given_so_far, window)
        assert cache.nbytes() == B * HEADS * WIDTH * 4 * kept
    assert cache.offset == given_so_far


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(2, 5), st.none() | st.integers(1, 4))
def test_one_entry_for_every_so_many_tokens(steps, every, window):
    cache = Cache(1, batch=B, capacity=sum(steps))
    for T in steps:
        before, complete = cache.offset // every, (cache.offset + T) // every
        (seen,) = cache.views[0].extend(k=entries(complete - before, before), every=every, window=window)
        cache.advance(T)
        # The first query comes before the first new entry is complete, and sees `window` older ones.
        visible = complete if window is None else min(complete, window + complete - before)
        torch.testing.assert_close(seen, entries(visible, complete - visible))
        assert cache.nbytes() == B * HEADS * WIDTH * 4 * (complete if window is None else min(complete, window))
    (written,) = cache.views[0].written()
    assert written.nbytes == B * HEADS * WIDTH * 4 * complete
    assert (written.every, written.full) == (every, None if window is None else window * every)


def test_the_room_for_entries_follows_from_the_tokens():
    """Ten tokens, one entry for every four: two, and one for those left over."""
    cache = Cache(1, batch=B, capacity=10)
    cache.views[0].extend(k=entries(2), every=4)
    cache.views[0].extend(k=entries(1), every=4)
    with pytest.raises(UsageError, match="10 tokens, 3 entries of 4 tokens each: it holds 3 and got 1 more"):
        cache.views[0].extend(k=entries(1), every=4)
    full = Cache(1, batch=B, capacity=3)
    full.views[0].extend(k=entries(0), every=8)  # none yet, and it is known how large they will be
    assert full.nbytes() == 0
    assert full.views[0].extend(k=entries(1), every=8)[0].shape == (B, HEADS, 1, WIDTH)


def test_entries_are_taken_back_with_the_tokens():
    cache = Cache(1, batch=B, capacity=8)
    view = cache.views[0]
    empty = cache.timing_mark()
    view.extend(k=entries(2), every=2)
    view.extend(w=entries(4), window=3)
    cache.advance(4)
    held, rewind = cache.held(), cache.timing_mark()
    for _ in range(3):
        (seen,) = view.extend(k=entries(2, 2), every=2)
        view.extend(w=entries(4, 4), window=3)
        torch.testing.assert_close(seen, entries(4))
        cache.advance(4)
        rewind()
        assert cache.held() == held
    assert [written.nbytes for written in view.written()] == [B * HEADS * WIDTH * 4 * n for n in (2, 4)]
    empty()
    assert cache.nbytes() == sum(written.nbytes for written in view.written()) == 0
    torch.testing.assert_close(view.extend(k=entries(4), every=2)[0], entries(4))


def test_extend_returns_in_keyword_order_from_one_buffer():
    cache = Cache(1, batch=B, capacity=8)
    place = None
    for T in (3, 1):
        k, v = cache.views[0].extend(k=entries(T), v=-entries(T))
        cache.advance(T)
        assert k.sum() >= 0 >= v.sum()
        assert place in (None, k.data_ptr())  # a view: nothing that is kept was copied
        place = k.data_ptr()


def test_a_longer_text_than_the_capacity_is_refused():
    cache = Cache(1, batch=B, capacity=4)
    cache.views[0].extend(k=entries(3))
    cache.advance(3)
    with pytest.raises(UsageError, match="room for 4 tokens: it holds 3 and got 2 more"):
        cache.views[0].extend(k=entries(2))


def test_another_batch_is_refused():
    with pytest.raises(UsageError, match="made for batch 3, the input has 2"):
        Cache(1, batch=3, capacity=4).views[0].extend(k=entries(1))


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("held", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_narrower_cache_rounds_what_it_holds(held, window):
    cache = Cache(1, batch=B, capacity=9, dtype=held)
    x = torch.randn(B, HEADS, 9, WIDTH)
    for part in x.split([5, 1, 1, 2], dim=-2):
        (seen,) = cache.views[0].extend(k=part, window=window)
        cache.advance(part.shape[-2])
        assert seen.dtype == torch.float32
        expected = x[..., : cache.offset, :][..., -seen.shape[-2] :, :]
        torch.testing.assert_close(seen, expected.to(held).float(), rtol=0, atol=0)
    assert cache.held().tokens == B * HEADS * WIDTH * held.itemsize * (9 if window is None else 2)


def test_bytes_are_told_apart_by_how_they_grow():
    cache = Cache(2, batch=B, capacity=5, dtype=torch.bfloat16)
    cache.views[0].extend(k=entries(1), v=entries(1))
    cache.views[0].state("s", lambda: torch.zeros(B, 8))
    cache.views[1].once(lambda: (entries(7), entries(7)))
    held = cache.held()
    assert held.tokens == 2 * B * HEADS * WIDTH * 2
    assert held.states == B * 8 * 4  # states stay in their own dtype
    assert held.cross == 2 * B * HEADS * 7 * WIDTH * 2
    assert cache.nbytes() == held.total


def test_bytes_are_known_without_values():
    cache = Cache(1, batch=1, capacity=2**20, device="meta")
    cache.views[0].extend(k=torch.empty(1, 8, 2**20, 128, device="meta", dtype=torch.bfloat16))
    assert cache.nbytes() == 2**20 * 8 * 128 * 2


def test_states_start_from_init_and_are_replaced():
    view = Cache(1, batch=B, capacity=1).views[0]
    torch.testing.assert_close(view.state("s", torch.ones(B, 2)), torch.ones(B, 2))
    view.replace(s=torch.full((B, 2), 3.0))
    torch.testing.assert_close(view.state("s", torch.ones(B, 2)), torch.full((B, 2), 3.0))


def test_once_runs_once():
    cache = Cache(2, batch=B, capacity=1)
    calls = []

    def project():
        calls.append(1)
        return entries(3), -entries(3)

    assert not cache.holds_source
    for _ in range(3):
        k, v = cache.views[1].once(project)
    torch.testing.assert_close((k, v), (entries(3), -entries(3)))
    assert calls == [1]
    assert cache.holds_source
