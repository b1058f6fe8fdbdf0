"""`fused_bytes` against sums by hand: a chain of element-wise rows moves its ends only."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from explorer.cost.ledger.trace import Trace

B, T, D = 2, 5, 16
N, ROWS, F32, BF16 = B * T * D, B * T, 4, 2


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


X, Y, WIDE, GAIN, SQUARE = meta(B, T, D), meta(B, T, D), meta(B, T, 3 * D), meta(D), meta(D, D)


def traced(call: Callable[[], Tensor]) -> Trace:
    """One part whose result leaves."""
    with Trace() as trace:
        with trace.part("part"):
            out = call()
        trace.leaves(out)
    return trace


def written_out_rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    wide = x.float()
    return gain * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


def halves_turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def filled_by_halves(x: Tensor) -> Tensor:
    out = torch.empty(B, T, 2 * D, device="meta")
    out[..., :D] = x * 2
    out[..., D:] = x + 1
    return out


CHAINS: dict[str, tuple[Callable[[], Tensor], int]] = {
    "one row": (lambda: X + Y, 3 * N * F32),
    "both operands are one": (lambda: X * X, 2 * N * F32),
    "swiglu": (lambda: F.silu(X) * Y, 3 * N * F32),
    "rotation": (lambda: X * Y + halves_turned(X) * Y, 3 * N * F32),
    "cast and back": (lambda: (X.to(torch.bfloat16) * 2).float(), 2 * N * F32),
    "softmax": (lambda: (X * 0.5 + Y).softmax(-1), 3 * N * F32),
    "reduction": (lambda: (X * Y).sum(-1), (2 * N + ROWS) * F32),
    "norm in one call": (lambda: F.rms_norm(X + Y, (D,), GAIN), (3 * N + D) * F32),
    "norm written out": (lambda: written_out_rms_norm(X, GAIN), (2 * N + D) * F32),
    "dropout": (lambda: F.dropout(X, 0.1) + Y, 3 * N * F32),
    "masked": (lambda: X.masked_fill(Y > 0, 0.0), 3 * N * F32),
    "in place": (lambda: (X * 2).add_(Y).relu_(), 3 * N * F32),
    "a constant": (lambda: X + torch.ones(D, device="meta"), (2 * N + D) * F32),
    "expanded": (lambda: X[:, :1].expand(B, T, D) * Y, (B * D + 2 * N) * F32),
    # Parts of one tensor are read once each, and what two parts share only once.
    "thirds": (lambda: WIDE[..., :D] * WIDE[..., D : 2 * D] + WIDE[..., 2 * D :], 4 * N * F32),
    "the same third": (lambda: WIDE[..., :D] * WIDE[..., :D] + 1, 2 * N * F32),
    "other shapes of one": (lambda: X.view(ROWS, D) * 2 + X.flatten(0, 1), 2 * N * F32),
    "neighbours": (lambda: X[:, 1:] - X[:, :-1], (N + B * (T - 1) * D) * F32),
    # Two chains that hand nothing to each other.
    "filled by halves": (lambda: filled_by_halves(X), 2 * (N + N) * F32),
    # What nobody reads is not written.
    "dead": (lambda: (X.exp(), X + 1)[1], (N + N) * F32 + N * F32),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_moves_its_ends(name: str) -> None:
    call, expected = CHAINS[name]
    assert traced(call).counts().fused_bytes == expected


def test_a_product_ends_a_chain() -> None:
    """SwiGLU between its maps: the products move all their operands, the chain reads two results and writes one."""
    found = traced(lambda: (F.silu(X @ SQUARE) * (Y @ SQUARE)) @ SQUARE).counts()
    products = 3 * (2 * N + D * D) * F32
    assert found.fused_bytes == products + 3 * N * F32
    assert found.moved_bytes == products + 5 * N * F32


def test_why_an_rms_norm_in_eager_moves_more_than_a_layer_norm_in_one_call() -> None:
    """In bfloat16: what a compiler would move is nearly the same."""
    x, gain, shift = (meta(*shape, dtype=torch.bfloat16) for shape in ((B, T, D), (D,), (D,)))
    eager = traced(lambda: written_out_rms_norm(x, gain)).counts()
    fused = traced(lambda: F.layer_norm(x, (D,), gain, shift)).counts()
    assert (eager.kernels, fused.kernels) == (8, 1)
    assert fused.moved_bytes == fused.fused_bytes == (2 * N + 2 * D) * BF16
    # cast 2 + 4, square 4 + 4, mean 4, times root 4 + 4, cast 4 + 2, gain 2 + 2 bytes per element; the rest per row.
    assert eager.moved_bytes == 36 * N + D * BF16 + 6 * ROWS * F32
    assert eager.fused_bytes == (2 * N + D) * BF16


def test_parts_are_not_joined() -> None:
    with Trace() as trace:
        with trace.part("first"):
            y = X * 2
        with trace.part("second"):
            z = y + 1
        trace.leaves(z)
    by_part = trace.counts_by_part()
    assert {part: counts.fused_bytes for (part, _), counts in by_part.items()} == dict.fromkeys(
        ("first", "second"), 2 * N * F32
    )


def test_rows_between_parts_are_not_joined() -> None:
    with Trace() as trace:
        (X * 2).relu()
    assert trace.counts().fused_bytes == trace.counts().moved_bytes == 4 * N * F32


@pytest.mark.parametrize("leaves", [True, False])
def test_what_a_row_outside_reads_is_written(leaves: bool) -> None:
    with Trace() as trace:
        with trace.part("part"):
            inner = X * 2
            out = inner + 1
        if leaves:
            trace.leaves({"state": [out, (inner,)]})
        else:
            out @ SQUARE + inner
    assert trace.counts_by_part()["part", False].fused_bytes == 3 * N * F32


def test_backward_is_outside() -> None:
    """What is saved for it is written, and read again: relu keeps its result, silu its argument, the product both."""
    x, y = meta(B, T, D, grad=True), meta(B, T, D, grad=True)
    with Trace() as trace:
        with trace.part("part"):
            out = F.silu(x) * y
        trace.leaves(out)
        trace.leaves(torch.autograd.grad(out, [x, y], torch.empty_like(out)))
    forward, backward = (trace.counts(which).fused_bytes for which in (False, True))
    assert forward == (2 + 2) * N * F32
    # gradient, x, y and silu(x) come in, two gradients go out: three kernels that share the gradient or hand it on.
    assert trace.counts(True).moved_bytes == (6 + 3) * N * F32
    # The product for y reads the gradient and silu(x) by itself; the other two are a chain.
    assert backward == (2 + 1) * N * F32 + (3 + 1) * N * F32


def test_what_is_written_into_a_storage_of_others_is_always_written() -> None:
    held, state = meta(B, T, D), meta(B, T, D)
    with Trace(cache=[held]) as trace, trace.part("part"):
        held[:, :1].copy_(X[:, :1] * 2)
        state.add_(1)
    assert trace.counts().fused_bytes == 2 * B * D * F32 + 2 * N * F32


def test_what_goes_into_a_cache_that_is_made_meanwhile_is_written() -> None:
    storages: set[int] = set()
    with Trace(cache=storages) as trace, trace.part("part"):
        held = torch.empty(B, T, D, device="meta")
        storages.add(held.untyped_storage()._cdata)
        held.copy_(X * 2)
    assert trace.counts().fused_bytes == 2 * N * F32
    assert trace.counts().written_cache == N * F32


def test_the_gradient_of_a_residual_stream_stays_within_its_part() -> None:
    """A chain lies within a direction too: forward and backward of a norm are two."""
    norm, x = nn.RMSNorm(D, device="meta"), meta(B, T, D, grad=True)
    with Trace() as trace:
        with trace.part("norm"):
            out = norm(x)
        trace.leaves(out)
        trace.leaves(torch.autograd.grad(out, [x, norm.weight], torch.empty_like(out)))
    counts = {
        backward: counts.fused_bytes for (_, backward), counts in trace.counts_by_part().items() if counts.kernels
    }
    assert counts == {False: (2 * N + D) * F32, True: (3 * N + 2 * D) * F32}


OPERATIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x * y.exp(),
    lambda x, y: x @ SQUARE,
    lambda x, y: x.softmax(-1),
    lambda x, y: x - y.mean(-1, keepdim=True),
    lambda x, y: x.to(torch.bfloat16).float(),
    lambda x, y: x[:, torch.zeros(T, dtype=torch.int64, device="meta")],
]


@given(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_any_program_moves_less_in_chains(program: list[tuple[Callable[[Tensor, Tensor], Tensor], int, int]]) -> None:
    """Between what must come in and go out of the whole and what the rows move; rows that stand alone move it all."""
    with Trace() as trace:
        values = [meta(B, T, D), meta(B, T, D)]
        with trace.part("part"):
            for operation, left, right in program:
                values.append(operation(values[left % len(values)], values[right % len(values)]))
        trace.leaves(values)
    found = trace.counts()
    assert found.fused_bytes <= found.moved_bytes
    assert found.fused_bytes >= (len(program) + 1) * N * F32  # each result leaves, and one tensor came in
    with Trace() as apart:
        values = [meta(B, T, D), meta(B, T, D)]
        for operation, left, right in program:
            values.append(operation(values[left % len(values)], values[right % len(values)]))
    assert apart.counts().fused_bytes == apart.counts().moved_bytes == found.moved_bytes
