"""The gated delta rule in chunks against its recurrence, written step by step in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from explorer_attentions.carry import carry
from explorer_attentions.chunks import halving_grid
from explorer_attentions.delta_chunks import unit_inverse
from explorer_attentions.delta_rule import delta_rule

B, KEY, VALUE = 2, 6, 3
LENGTHS = [1, 2, 5, 64, 65, 130]  # a step, within a chunk, a whole one, one token more, three
LAYOUTS = {  # key heads, value heads, channels of the decay
    "by head": (2, 2, 1),
    "by head, grouped": (2, 6, 1),
    "by head, one key head": (1, 3, 1),
    "by channel": (2, 2, KEY),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_length = pytest.mark.parametrize("T", LENGTHS)
NAMES = ("q", "k", "v", "beta", "log_decay", "state")


def drawn(layout, T, *, decay=1.0, dtype=torch.float64):
    """Arguments as a layer makes them: unit keys, beta in (0, 1), log decays in [-decay, 0]."""
    key_heads, heads, channels = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    q, k = (F.normalize(normal(B, key_heads, T, KEY), dim=-1) for _ in "qk")
    v, state = normal(B, heads, T, VALUE), normal(B, heads, KEY, VALUE)
    beta, log_decay = normal(B, heads, T, 1).sigmoid(), -decay * normal(B, heads, T, channels).sigmoid()
    return tuple(t.to(dtype) for t in (q, k, v, beta, log_decay, state))


def recurrence(q, k, v, beta, log_decay, state):
    """One token after the other: forget, look up, correct, read."""
    q, k = (t.repeat_interleave(v.shape[1] // t.shape[1], dim=1) for t in (q, k))
    outputs = []
    for t in range(v.shape[2]):
        state = torch.exp(log_decay[:, :, t])[..., None] * state
        held = torch.einsum("bhkv,bhk->bhv", state, k[:, :, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, :, t], beta[:, :, t] * (v[:, :, t] - held))
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]))
    return torch.stack(outputs, dim=1), state


def close(came, wanted, **tolerance):
    for one, other in zip(came, wanted, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@each_length
@each_layout
def test_the_chunks_equal_the_recurrence(layout, T):
    given = drawn(layout, T)
    close(delta_rule(*given), recurrence(*given), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cuts", [(64, 66), (1, 129), (65, 1, 64), (3, 60, 67)])
@each_layout
def test_a_text_in_pieces_equals_the_whole(layout, cuts):
    *tokens, state = drawn(layout, 130)
    whole, outputs, start = delta_rule(*tokens, state), [], 0
    for size in cuts:
        y, state = delta_rule(*(t[:, :, start : start + size] for t in tokens), state)
        outputs.append(y)
        start += size
    close((torch.cat(outputs, dim=1), state), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("T", [5, 65])
@each_layout
def test_gradients_equal_those_of_the_recurrence(layout, T):
    given = [t.requires_grad_() for t in drawn(layout, T)]
    weights = [
        torch.randn(t.shape, dtype=t.dtype, generator=torch.Generator().manual_seed(1)) for t in recurrence(*given)
    ]

    def gradients(rule):
        total = sum((out * weight).sum() for out, weight in zip(rule(*given), weights, strict=True))
        return dict(zip(NAMES, torch.autograd.grad(total, given), strict=True))

    came, wanted = gradients(delta_rule), gradients(recurrence)
    for name in NAMES:
        torch.testing.assert_close(came[name], wanted[name], rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("decay", [0.01, 5.0, 200.0])
@each_layout
def test_float32_keeps_its_digits_under_strong_decays(layout, decay):
    """-5 a step is -320 over a chunk: differences of cumulative sums would lose 5 digits, quotients would overflow."""
    given = drawn(layout, 130, decay=decay)
    wanted = recurrence(*given)
    came = delta_rule(*(t.float() for t in given))
    close((t.double() for t in came), wanted, rtol=1e-5, atol=2e-6)


@each_layout
def test_a_weak_decay_after_a_strong_one_is_exact(layout):
    """A state that was all but erased is filled anew: what is remembered then must not depend on what came before."""
    q, k, v, beta, log_decay, state = drawn(layout, 64, decay=0.1)
    log_decay[:, :, 10] = -1e5
    given = (q, k, v, beta, log_decay, state)
    close((t.double() for t in delta_rule(*(t.float() for t in given))), recurrence(*given), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("decay", [0.0, 200.0])
@each_layout
def test_gradients_are_finite_without_decay_and_where_nothing_is_kept(layout, decay):
    given = [t.requires_grad_() for t in drawn(layout, 65, decay=decay, dtype=torch.float32)]
    y, state = delta_rule(*given)
    for gradient in torch.autograd.grad(y.sum() + state.sum(), given):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("length", [1, 2, 8, 64])
def test_the_inverse_is_as_good_as_a_triangular_solve(length):
    generator = torch.Generator().manual_seed(0)
    below = torch.rand(3, length, length, dtype=torch.float64, generator=generator).tril(-1)
    wanted = torch.linalg.solve_triangular(
        below, torch.eye(length, dtype=torch.float64), upper=False, unitriangular=True
    )
    torch.testing.assert_close(unit_inverse(below), wanted, rtol=1e-12, atol=1e-12)


def test_the_inverse_for_equal_keys():
    """A of ones, from one key again and again: its powers reach 1e18, its inverse has two diagonals of 1 and -1."""
    ones = torch.ones(64, 64)
    inverse = unit_inverse(ones.tril(-1))
    torch.testing.assert_close(inverse, torch.eye(64) - torch.eye(64).roll(1, 0).tril(), rtol=0, atol=0)


def test_a_key_seen_again_is_corrected_not_added():
    """Without decay and with beta 1 the state holds the last value of each key: what `linear` lacks."""
    k = F.one_hot(torch.tensor([0, 1, 0, 0]), KEY).double()[None, None]
    v = torch.arange(4.0, dtype=torch.float64).view(1, 1, 4, 1)
    state = torch.zeros(1, 1, KEY, 1, dtype=torch.float64)
    y, state = delta_rule(k, k, v, torch.ones_like(v), torch.zeros_like(v), state)
    assert y.flatten().tolist() == [0, 1, 2, 3]
    assert state.flatten().tolist() == [3, 1, 0, 0, 0, 0]


def test_chunks_are_halved_down_to_tokens():
    grids = {0: (1, 4), 2: (1, 4), 4: (1, 4), 5: (1, 16), 17: (1, 64), 64: (1, 64), 65: (2, 64), 1000: (16, 64)}
    assert {T: halving_grid(T) for T in grids} == grids


@pytest.mark.parametrize("channels", [1, KEY])
def test_the_loop_as_one_operator_has_the_values_and_gradients_of_the_loop(channels):
    """A compiler gets it as an operator, whose backward is written by hand."""
    sizes = ((3, 4, 5, KEY), (3, 4, 5, VALUE), (3, 4, KEY, 5), (3, 4, channels, 1), (3, KEY, VALUE))
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(size, dtype=torch.float64, generator=generator).requires_grad_() for size in sizes]
    weights = [torch.randn(out.shape, dtype=torch.float64, generator=generator) for out in carry(*given)]

    def with_gradients(out):
        return out, torch.autograd.grad(sum((o * w).sum() for o, w in zip(out, weights, strict=True)), given)

    operator = torch.ops.explorer_attentions.carry
    (came, to_came), (wanted, to_wanted) = with_gradients(operator(*given, None, False)), with_gradients(carry(*given))
    close((*came, *to_came), (*wanted, *to_wanted), rtol=1e-12, atol=1e-12)
    torch.library.opcheck(operator.default, (*given, None, False))
