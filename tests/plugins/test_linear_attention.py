"""Linear attention against the paper's weights, written out as a matrix in float64."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from explorer import Cache, Position, build
from explorer_attentions.linear import LinearAttention, accumulated
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE

DIM, HEADS, HEAD_DIM, B = 16, 4, 6, 2  # heads * head_dim is not dim
FEATURES = {
    "elu": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": lambda x: x.clamp(min=0),
}
each_map = pytest.mark.parametrize("feature_map", FEATURES)
each_length = pytest.mark.parametrize("T", [1, 5, 64, 65, 130])
each_direction = pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])


def built(feature_map="elu", *, causal=True, bias=True, position=None) -> LinearAttention:
    torch.manual_seed(0)
    place = position or NoPosition()
    return LinearAttention(DIM, HEADS, HEAD_DIM, causal, bias, lambda head_dim: place, feature_map=feature_map).eval()


def drawn(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def written_out(layer, x, feature_map, *, causal=True, position=None):
    """Every weight phi(q_i) . phi(k_j), the hidden ones 0, each row divided by its sum."""
    x, weight = x.double(), {name: p.double() for name, p in layer.named_parameters()}
    heads = (x @ weight["qkv.weight"].T + weight["qkv.bias"]).unflatten(-1, (3, HEADS, HEAD_DIM))
    q, k, v = (t.transpose(1, 2) for t in heads.unbind(2))
    if position is not None:
        q, k = (position.rotate(t, torch.arange(x.shape[1])) for t in (q, k))
    weights = FEATURES[feature_map](q) @ FEATURES[feature_map](k).transpose(-1, -2)
    weights = weights.tril() if causal else weights
    y = (weights @ v) / weights.sum(-1, keepdim=True).clamp(min=1e-6)
    return y.transpose(1, 2).flatten(2) @ weight["out.weight"].T + weight["out.bias"]


@each_length
@each_direction
@each_map
@torch.no_grad()
def test_it_equals_the_weights_written_out(feature_map, causal, T):
    layer, x = built(feature_map, causal=causal), drawn(B, T, DIM)
    torch.testing.assert_close(
        layer(x).double(), written_out(layer, x, feature_map, causal=causal), rtol=1e-4, atol=1e-5
    )
    layer = layer.double()
    wanted = written_out(layer, x, feature_map, causal=causal)
    torch.testing.assert_close(layer(x.double()), wanted, rtol=1e-9, atol=1e-10)


@each_direction
@each_map
@torch.no_grad()
def test_a_rotation_turns_queries_and_keys_in_front_of_the_features(feature_map, causal):
    rope = RoPE(HEAD_DIM)
    layer, x = built(feature_map, causal=causal, position=rope).double(), drawn(B, 70, DIM).double()
    wanted = written_out(layer, x, feature_map, causal=causal, position=rope)
    torch.testing.assert_close(layer(x), wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("position", [None, RoPE(HEAD_DIM)], ids=["none", "rope"])
@each_map
@torch.no_grad()
def test_a_text_in_pieces_equals_the_whole(feature_map, position):
    layer, x = built(feature_map, position=position).double(), drawn(B, 75, DIM).double()
    cache, outputs = Cache(1, batch=B, capacity=75), []
    for piece in x.split([1, 2, 69, 1, 1, 1], dim=1):
        outputs.append(layer(piece, cache=cache.views[0]))
        cache.advance(piece.shape[1])
    torch.testing.assert_close(torch.cat(outputs, dim=1), layer(x), rtol=1e-9, atol=1e-10)


@each_direction
@each_map
def test_gradients_equal_those_of_the_weights_written_out(feature_map, causal):
    layer, x = built(feature_map, causal=causal).double(), drawn(B, 70, DIM).double().requires_grad_()
    tensors, weighting = [x, *layer.parameters()], drawn(B, 70, DIM, seed=2)
    came, wanted = (
        torch.autograd.grad((y * weighting).sum(), tensors)
        for y in (layer(x), written_out(layer, x, feature_map, causal=causal))
    )
    torch.testing.assert_close(came, wanted, rtol=1e-7, atol=1e-9)


@each_length
def test_the_chunks_equal_the_recurrence(T):
    q, k, v, state = (
        drawn(B, HEADS, *shape, seed=i).double() for i, shape in enumerate([(T, 6), (T, 6), (T, 3), (6, 3)])
    )
    outputs, wanted = [], state
    for t in range(T):
        wanted = wanted + torch.einsum("bhk,bhv->bhkv", k[:, :, t], v[:, :, t])
        outputs.append(torch.einsum("bhkv,bhk->bhv", wanted, q[:, :, t]))
    y, state = accumulated(q, k, v, state)
    torch.testing.assert_close(y, torch.stack(outputs, dim=1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(state, wanted, rtol=1e-10, atol=1e-10)


@each_direction
def test_a_query_without_features_reads_zeros(causal):
    layer = built("relu", causal=causal, bias=False)
    with torch.no_grad():
        layer.qkv.weight[: HEADS * HEAD_DIM] = 0  # q, and so phi(q), is 0
    x = drawn(B, 5, DIM).requires_grad_()
    out = layer(x)
    torch.testing.assert_close(out, torch.zeros_like(out), rtol=0, atol=0)
    out.sum().backward()
    assert x.grad.isfinite().all()
    assert layer.qkv.weight.grad.isfinite().all()


# parameters, cost, state


@pytest.mark.parametrize(("bias", "more"), [(False, 0), ("qkv", 3 * 24), ("out", DIM), (True, 3 * 24 + DIM)])
def test_parameters(bias, more):
    """4 d h k, as multi-head attention."""
    assert sum(p.numel() for p in built(bias=bias).parameters()) == 4 * DIM * HEADS * HEAD_DIM + more


@pytest.mark.parametrize(("T", "n", "C"), [(5, 1, 5), (65, 2, 33), (128, 2, 64), (130, 3, 44)])
def test_products_of_a_prefill(T, n, C):
    """In each of n even chunks of C tokens 4 C^2 k for the pairs and 4 C k^2 for the state."""
    k, width = HEAD_DIM, HEADS * HEAD_DIM
    layer = built(bias=False).to("meta")
    with FlopCounterMode(display=False) as counter:
        layer(torch.empty(1, T, DIM, device="meta"))
    assert counter.get_total_flops() == 2 * T * 4 * DIM * width + HEADS * n * (4 * C * C * k + 4 * C * k * k)


@torch.no_grad()
def test_the_state_is_float32_and_does_not_grow():
    layer, sizes = built().to(torch.bfloat16), set()
    cache = Cache(1, batch=B, capacity=80, dtype=torch.float16)  # keys and values would be held in half precision
    for size in (1, 1, 5, 70, 3):
        layer(drawn(B, size, DIM).bfloat16(), cache=cache.views[0])
        cache.advance(size)
        sizes.add((cache.held().states, cache.held().tokens))
    assert sizes == {(B * HEADS * (HEAD_DIM * HEAD_DIM + HEAD_DIM) * 4, 0)}
    for name in ("state", "keys"):
        held = cache.views[0].state(name, lambda: pytest.fail("there is a state"))
        assert held.untyped_storage().nbytes() == held.nbytes  # a view would keep the whole text alive


@each_direction
@each_map
@torch.no_grad()
def test_bfloat16_stays_near_float32(feature_map, causal):
    layer = built(feature_map, causal=causal)
    half = built(feature_map, causal=causal).to(torch.bfloat16)
    x = drawn(B, 130, DIM).bfloat16()
    out, wanted = half(x), layer(x.float())
    assert out.dtype == torch.bfloat16
    assert (out.float() - wanted).norm() < 0.02 * wanted.norm()


def test_it_serves_an_encoder():
    written = {"dim": DIM, "heads": HEADS, "attention": "linear", "causal": False}
    block = build(written, scope="block", device="cpu").eval()
    x = drawn(B, 5, DIM)
    changed = x.clone()
    changed[:, -1] += 1
    assert not torch.equal(block(x)[:, 0], block(changed)[:, 0])


def test_a_position_that_adds_to_the_scores_is_refused():
    class Slope(Position):
        def bias(self, T, S, offset):
            return torch.zeros(T, S)

    with pytest.raises(
        ValueError, match="linear attention has no scores to which the position Slope could add its bias"
    ):
        built(position=Slope())
