"""What the attentions with a state of constant size share: padding, no tokens, autocast, graphs, float32."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from explorer import RefusedError, UsageError, build

DIM, HEADS, B = 16, 4, 2
NAMES = ["linear", "gated_deltanet", "kda"]
each = pytest.mark.parametrize("name", NAMES)


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def block_of(attention, **fields):
    written = {"dim": DIM, "heads": HEADS, "attention": attention, "feedforward": "none", **fields}
    return build(written, scope="block", device="cpu").eval()


def states(cache):
    return {name: state for view in cache.views for name, state in view._states.items()}


@each
def test_a_window_is_refused(name):
    with pytest.raises(RefusedError, match=f"attention '{name}' takes no window"):
        block_of(name, window=2)


@pytest.mark.parametrize("name", ["gated_deltanet", "kda"])
def test_delta_rules_are_always_causal(name):
    with pytest.raises(RefusedError, match=f"attention '{name}' is always causal"):
        block_of(name, causal=False)


# padding


def padding(*lengths, total, left):
    """(B, 1, 1, total), True for so many tokens at one end of each text."""
    place = torch.arange(total)
    rows = [place >= total - length if left else place < length for length in lengths]
    return torch.stack(rows)[:, None, None]


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("total", [9, 70])
@each
@torch.no_grad()
def test_padded_texts_equal_each_alone(name, total, left):
    """A stack that has both kinds of attention takes one mask; rotary positions see distances only."""
    blocks = {"state": {"attention": name, "position": "none"}, "full": {"attention": {"gqa": {"kv_heads": 2}}}}
    written = {"dim": DIM, "heads": HEADS, "vocab": 32, "blocks": blocks, "layers": ["state", "full", "state"]}
    model = build(written, device="cpu").eval()
    lengths, ids = (total, total - 3, 2), torch.randint(32, (3, total), generator=torch.Generator().manual_seed(0))
    out = model(ids, mask=padding(*lengths, total=total, left=left))
    for row, length in enumerate(lengths):
        text = slice(total - length, None) if left else slice(length)
        torch.testing.assert_close(out[row, text], model(ids[row : row + 1, text])[0], rtol=1e-4, atol=1e-5)


@each
@torch.no_grad()
def test_left_padding_through_the_cache_equals_each_text_alone(name):
    block, x = block_of(name, position="none"), drawn(B, 8, DIM)
    mask, cache = padding(8, 5, total=8, left=True), block.make_cache(B, 8)
    cuts = (0, 4, 5, 6, 8)
    pieces = [block(x[:, a:b], mask=mask[..., :b], cache=cache) for a, b in pairwise(cuts)]
    out = torch.cat(pieces, dim=1)
    torch.testing.assert_close(out[0], block(x[:1])[0])
    torch.testing.assert_close(out[1, 3:], block(x[1:, 3:])[0])


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5), (1, 1, 1, 5), (B, 1, 1, 5), (B, 1, 1, 7), (1,)])
@each
@torch.no_grad()
def test_any_shape_of_padding(name, shape):
    """Of a longer mask the last columns count."""
    block, x = block_of(name), drawn(B, 5, DIM)
    mask = torch.ones(shape, dtype=torch.bool)
    torch.testing.assert_close(block(x, mask=mask), block(x))
    if mask.shape[-1] > 1:
        mask[..., -2] = False
        other = x.clone()
        other[:, 3] += 1
        out, moved = block(x, mask=mask), block(other, mask=mask)
        torch.testing.assert_close(moved[:, [0, 1, 2, 4]], out[:, [0, 1, 2, 4]])


@pytest.mark.parametrize("shape", [(5, 5), (B, HEADS, 1, 5), (B, 1, 5, 5), (3, 1, 1, 5), (4,), (1, B, 1, 1, 5)])
@each
def test_what_is_not_padding_is_refused(name, shape):
    with pytest.raises(
        UsageError, match=r"a mask here must be padding, broadcastable to \(B, 1, 1, S\) = \(2, 1, 1, 5\)"
    ):
        block_of(name)(drawn(B, 5, DIM), mask=torch.ones(shape, dtype=torch.bool))


@each
def test_a_mask_of_numbers_is_refused(name):
    with pytest.raises(UsageError, match=r"a mask must be bool, True = may attend, not torch\.float32"):
        block_of(name)(drawn(B, 5, DIM), mask=torch.zeros(1, 1, 1, 5))


@each
def test_gradients_stay_finite_where_all_is_hidden(name):
    block, x = block_of(name), drawn(B, 70, DIM).requires_grad_()
    out = block(x, mask=torch.zeros(B, 1, 1, 70, dtype=torch.bool))
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in block.parameters())


# no tokens


@each
@torch.no_grad()
def test_no_tokens_leave_the_cache_as_it_is(name):
    block, x = block_of(name), drawn(B, 6, DIM)
    cache, other = block.make_cache(B, 6), block.make_cache(B, 6)
    assert block(x[:, :0]).shape == (B, 0, DIM)
    for start, end in ((0, 0), (0, 5), (5, 5), (5, 6)):
        before = states(cache)
        out = block(x[:, start:end], cache=cache)
        if start == end:
            assert out.shape == (B, 0, DIM)
            assert all(state is before[key] for key, state in states(cache).items())
            assert len(before) == len(states(cache))
        else:
            torch.testing.assert_close(out, block(x[:, start:end], cache=other), rtol=0, atol=0)


# dtypes


@each
@torch.no_grad()
def test_states_are_float32_and_exact_under_autocast(name):
    block, x = block_of(name), drawn(B, 75, DIM)
    cache, other = block.make_cache(B, 75), block.make_cache(B, 75)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for piece in x.split([3, 70, 1, 1], dim=1):
            block(piece, cache=cache)
    for piece in x.split([3, 70, 1, 1], dim=1):
        block(piece, cache=other)
    for key, state in states(cache).items():
        if key != "inputs":  # of the convolution: what its projection made
            assert state.dtype == torch.float32, key
            wanted = states(other)[key]
            assert (state - wanted).norm() < 0.02 * wanted.norm()


@pytest.mark.parametrize("name", ["gated_deltanet", "kda"])
@pytest.mark.parametrize("convert", [lambda m: m.to(torch.bfloat16), nn.Module.half], ids=["bfloat16", "half"])
@torch.no_grad()
def test_the_rates_of_a_decay_are_not_rounded(name, convert):
    block = block_of(name)
    before = {key: p.clone() for key, p in block.named_parameters() if key.endswith(("a_log", "dt"))}
    assert len(before) == 2
    kept = dict(convert(block).named_parameters())
    for key, wanted in before.items():
        torch.testing.assert_close(kept[key], wanted, rtol=0, atol=0)
    assert all(p.dtype in (torch.bfloat16, torch.float16) for key, p in kept.items() if key not in before)


# compiled


LENGTHS = (5, 1, 2, 3, 7, 16, 33, 63, 64, 65, 127, 128, 129, 192, 200, 700)


@each
@torch.no_grad()
def test_one_compiled_layer_serves_all_lengths(name):
    """The loop over chunks is one operator, so a graph holds for any number of them: fewer graphs than dynamo's 8."""
    block, graphs = block_of(name), []

    def backend(graph, inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    for T in LENGTHS:
        torch.testing.assert_close(compiled(drawn(B, T, DIM)), block(drawn(B, T, DIM)), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()
    assert len(graphs) <= 7
    assert max(graphs) < 500


def test_gradients_of_a_compiled_layer():
    """Of the one whose backward torch's `aot_eager` can run: that of the others views what is not laid out for it."""
    block, x = block_of("gated_deltanet"), drawn(B, 130, DIM).requires_grad_()
    tensors = [x, *block.parameters()]
    wanted = torch.autograd.grad(block(x).square().sum(), tensors)
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    came = torch.autograd.grad(compiled(x).square().sum(), tensors)
    torch.compiler.reset()
    torch.testing.assert_close(came, wanted, rtol=1e-3, atol=1e-4)
