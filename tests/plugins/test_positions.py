"""Positions against the papers' formulas in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers.models.distilbert.modeling_distilbert import create_sinusoidal_embeddings
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from explorer import Position
from explorer_norms.rmsnorm import RMSNorm
from explorer_positions import register_positions
from explorer_positions.alibi import ALiBi
from explorer_positions.learned import Learned
from explorer_positions.none import NoPosition
from explorer_positions.rope import RoPE
from explorer_positions.scaling import Scaling
from explorer_positions.sinusoidal import Sinusoidal
from explorer_positions.t5_bias import T5Bias

DIM, T = 16, 5
PLACES = torch.arange(3, 3 + T)


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def angles(positions, base, width):
    """p * base^(-2i / width), one by one in Python's own floats."""
    return torch.tensor(
        [[p * base ** (-2 * i / width) for i in range(width // 2)] for p in positions.tolist()], dtype=torch.float64
    )


# Rotary


def llama_rope(x, positions, base=10000.0):
    """x cos + rotate_half(x) sin, with cos and sin repeated as a whole."""
    t = angles(positions, base, x.shape[-1]).repeat(1, 2)
    a, b = x.chunk(2, dim=-1)
    return x * t.cos() + torch.cat([-b, a], dim=-1) * t.sin()


def complex_rope(x, positions, base=10000.0):
    """The paper's form: neighbours are a complex number, multiplied by e^(it)."""
    t = angles(positions, base, x.shape[-1])
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(t), t)).flatten(-2)


ROPES = {  # ours, the same in float64
    "half": (RoPE(DIM), llama_rope),
    "interleaved": (RoPE(DIM, pairing="interleaved"), complex_rope),
    "base": (RoPE(DIM, base=500000.0), lambda x, p: llama_rope(x, p, 500000.0)),
    "start": (RoPE(DIM, dims=4), lambda x, p: torch.cat([llama_rope(x[..., :4], p), x[..., 4:]], -1)),
    "end": (RoPE(DIM, dims=4, at="end"), lambda x, p: torch.cat([x[..., :-4], llama_rope(x[..., -4:], p)], -1)),
    "gpt-j": (
        RoPE(DIM, dims=8, pairing="interleaved"),
        lambda x, p: torch.cat([complex_rope(x[..., :8], p), x[..., 8:]], -1),
    ),
}


@pytest.mark.parametrize("name", ROPES)
# float32 holds an angle of 4000 to 1.2e-4: the price of float32 cosines, which every implementation pays.
@pytest.mark.parametrize(("positions", "atol"), [(PLACES, 2e-6), (PLACES + 4000, 1e-3)], ids=["near", "far"])
def test_rope_equals_its_formula(name, positions, atol):
    ours, formula = ROPES[name]
    x = drawn(2, 3, T, DIM)
    expected = formula(x.double(), positions).float()
    torch.testing.assert_close(ours.rotate(x, positions), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ROPES)
def test_rope_gradient_is_that_of_its_formula(name):
    ours, formula = ROPES[name]
    x, weight = drawn(2, 3, T, DIM), drawn(2, 3, T, DIM).flip(0)
    grads = []
    for rotate, dtype in ((ours.rotate, torch.float32), (formula, torch.float64)):
        given = x.to(dtype, copy=True).requires_grad_()
        (rotate(given, PLACES) * weight).sum().backward()
        grads.append(given.grad.float())
    torch.testing.assert_close(*grads, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ROPES)
def test_rope_leaves_its_input_alone_in_any_layout(name):
    """It computes in place on what it made itself."""
    ours, _ = ROPES[name]
    x = drawn(2, T, 3, DIM).transpose(1, 2)
    kept = x.clone()
    torch.testing.assert_close(ours.rotate(x, PLACES), ours.rotate(x.contiguous(), PLACES), rtol=0, atol=0)
    torch.testing.assert_close(x, kept, rtol=0, atol=0)
    assert ours.rotate(x.double(), PLACES).dtype == torch.float64


@pytest.mark.parametrize("name", ROPES)
def test_rope_turns_back_at_negative_places(name):
    ours, _ = ROPES[name]
    x = drawn(2, 3, T, DIM)
    torch.testing.assert_close(ours.rotate(ours.rotate(x, PLACES), -PLACES), x, rtol=0, atol=2e-6)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rope_scores_depend_on_the_distance_only(pairing):
    rope, x = RoPE(DIM, pairing=pairing), drawn(1, 1, 2, DIM)

    def score(p, q):
        a, b = (rope.rotate(x[..., i : i + 1, :], torch.tensor([place])) for i, place in enumerate((p, q)))
        return (a * b).sum()

    torch.testing.assert_close(score(2, 7), score(12, 17))
    torch.testing.assert_close(rope.rotate(x[..., :1, :], torch.tensor([0])), x[..., :1, :], rtol=0, atol=0)


def test_pairings_agree_up_to_the_order_of_channels():
    x = drawn(2, 3, T, DIM)
    order = [*range(0, DIM, 2), *range(1, DIM, 2)]
    interleaved = RoPE(DIM, pairing="interleaved").rotate(x, PLACES)
    torch.testing.assert_close(RoPE(DIM).rotate(x[..., order], PLACES), interleaved[..., order])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rope_rounds_once_at_the_end(dtype):
    x = drawn(2, 3, T, DIM, dtype=dtype)
    for rope, _ in ROPES.values():
        y = rope.rotate(x, PLACES)
        assert y.dtype == dtype
        torch.testing.assert_close(y, rope.rotate(x.float(), PLACES).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_dim": 15}, "dims 15 must be even"),
        ({"head_dim": 16, "dims": 7}, "dims 7 must be even"),
        ({"head_dim": 16, "dims": 32}, "dims 32 must be at most head_dim 16"),
    ],
)
def test_rope_refuses_what_it_cannot_rotate(options, message):
    with pytest.raises(ValueError, match=message):
        RoPE(**options)


@pytest.mark.parametrize(
    ("gain", "norm_first", "rope_first"),
    [
        ([0.5, 1.0, 2.0, 1.5], [-0.489925, 0.664251, -2.143200, 2.211810], [-0.258042, 0.686157, -2.065905, 2.222763]),
        ([1.5] * 4, None, None),
    ],
)
def test_f6_order_of_norm_and_rotation(gain, norm_first, rope_first):
    rope, norm, x = RoPE(4), RMSNorm(4), torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    norm.weight.data = torch.tensor(gain)
    place = torch.tensor([3])
    first, second = rope.rotate(norm(x), place), norm(rope.rotate(x, place))
    if norm_first is None:
        torch.testing.assert_close(first, second)
        return
    torch.testing.assert_close(first.flatten(), torch.tensor(norm_first), rtol=0, atol=1e-6)
    torch.testing.assert_close(second.flatten(), torch.tensor(rope_first), rtol=0, atol=1e-6)


# Sinusoidal


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sinusoidal_equals_its_formula(layout):
    x, t = drawn(2, T, DIM), angles(PLACES, 10000.0, DIM)
    table = torch.zeros(T, DIM, dtype=torch.float64)
    sines, cosines = {
        "interleaved": (slice(0, None, 2), slice(1, None, 2)),
        "halves": (slice(0, DIM // 2), slice(DIM // 2, None)),
    }[layout]
    table[:, sines], table[:, cosines] = t.sin(), t.cos()
    ours = Sinusoidal(DIM, layout=layout)
    torch.testing.assert_close(ours.embed(x, PLACES), (x.double() + table).float(), rtol=0, atol=2e-6)
    assert not ours.state_dict()


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_sinusoidal_is_transformers_table(layout):
    if layout == "halves":
        theirs = MarianSinusoidalPositionalEmbedding(16, DIM).create_weight()
    else:
        theirs = create_sinusoidal_embeddings(16, DIM, torch.empty(16, DIM))
    table = Sinusoidal(DIM, layout=layout).embed(torch.zeros(1, 16, DIM), torch.arange(16))
    torch.testing.assert_close(table[0], theirs, rtol=0, atol=2e-6)


def test_sinusoidal_refuses_an_odd_width():
    with pytest.raises(ValueError, match="dim 15 must be even"):
        Sinusoidal(15)


# Frequencies and the like survive whatever happens to a model

YARN = Scaling.parse({"yarn": {"factor": 4, "original": 64}})


def from_meta(position):
    with torch.device("meta"):
        again = copy.deepcopy(position).to("meta")
    return again.to_empty(device="cpu")


@pytest.mark.parametrize("change", [lambda p: p.to(torch.bfloat16), lambda p: p.half(), from_meta, copy.deepcopy])
@pytest.mark.parametrize(
    "make", [lambda: RoPE(DIM, base=5e5, dims=8), lambda: RoPE(DIM, scaling=YARN), lambda: Sinusoidal(DIM)]
)
def test_frequencies_stay_float32_and_right(change, make):
    changed, x = change(make()), drawn(2, T, DIM)
    assert changed.frequency.dtype == torch.float32
    torch.testing.assert_close(changed.rotate(x, PLACES), make().rotate(x, PLACES), rtol=0, atol=0)
    torch.testing.assert_close(changed.embed(x, PLACES), make().embed(x, PLACES), rtol=0, atol=0)


@pytest.mark.parametrize("change", [lambda p: p.to(torch.bfloat16), lambda p: p.half(), from_meta, copy.deepcopy])
def test_slopes_stay_float32_and_right(change):
    torch.testing.assert_close(change(ALiBi(12)).bias(T, T, 0), ALiBi(12).bias(T, T, 0), rtol=0, atol=0)


@pytest.mark.parametrize("change", [from_meta, copy.deepcopy])
def test_buckets_stay_right(change):
    ours = T5Bias(3, True)
    changed = change(ours)
    changed.load_state_dict(ours.state_dict())
    torch.testing.assert_close(changed.bias(T, 200, 0), ours.bias(T, 200, 0), rtol=0, atol=0)


def test_constants_are_float32_whatever_the_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        made = [RoPE(DIM), RoPE(DIM, scaling=YARN), Sinusoidal(DIM), ALiBi(4)]
    finally:
        torch.set_default_dtype(torch.float32)
    assert [buffer.dtype for position in made for buffer in position.buffers()] == [torch.float32] * 4


# Learned, none


def test_learned_adds_one_row_a_position():
    ours, x = Learned(DIM, max_tokens=8), drawn(2, T, DIM)
    expected = torch.stack([x[:, i] + ours.table.weight[place] for i, place in enumerate(PLACES.tolist())], dim=1)
    torch.testing.assert_close(ours.embed(x, PLACES), expected, rtol=0, atol=0)
    assert ours.max_tokens == 8
    assert sum(p.numel() for p in ours.parameters()) == 8 * DIM


def test_learned_refuses_more_tokens_than_it_has_rows():
    with pytest.raises(ValueError, match=r"5 tokens are more than the learned table holds \(max_tokens 4\)"):
        Learned(DIM, max_tokens=4).embed(drawn(2, T, DIM), torch.arange(T))


@pytest.mark.parametrize(
    "position", [NoPosition(), Learned(DIM), Sinusoidal(DIM), RoPE(DIM), ALiBi(4), T5Bias(4, False)]
)
def test_each_acts_in_one_place_only(position):
    x = drawn(2, T, DIM)
    acts = {
        "embed": not torch.equal(position.embed(x, PLACES), x),
        "rotate": not torch.equal(position.rotate(x, PLACES), x),
        "bias": position.bias(T, T, 0) is not None,
    }
    embed, bias = {"embed"}, {"bias"}
    where = {NoPosition: set(), Learned: embed, Sinusoidal: embed, RoPE: {"rotate"}, ALiBi: bias, T5Bias: bias}
    assert {name for name, does in acts.items() if does} == where[type(position)]
    assert isinstance(position, Position)


def test_hook_lists_every_position():
    assert sorted(register_positions()) == ["alibi", "learned", "none", "rope", "sinusoidal", "t5_bias"]
