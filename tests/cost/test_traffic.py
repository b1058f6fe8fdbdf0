"""Bytes read and written, and kernels, against counts by hand: numel x itemsize of what a kernel moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.assembly.attend import attend
from explorer.assembly.cache import Cache
from explorer.assembly.visible import Visible
from explorer.cost.ledger.rows import Traffic
from explorer.cost.ledger.trace import Trace

B, T, D, V = 2, 5, 16, 30
N, ROWS = B * T * D, B * T
F32, BF16, INT = 4, 2, 8  # bytes


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def ints(*shape: int) -> Tensor:
    return meta(*shape, dtype=torch.int64)


X, WIDE, NARROW = meta(B, T, D), meta(B, T, 3 * D), meta(B, T, D, dtype=torch.bfloat16)
TABLE, IDS, THREE = meta(V, D), ints(B, T), ints(3)
MASK = meta(B, T, D, dtype=torch.bool)
SOME, OTHER = meta(B, 3, D), ints(B, 3, D)


def moved(call: Callable[[], Any], train: bool = False) -> tuple[int, int, int]:
    """Bytes read and written, and kernels, of one call; with train of its backward."""
    with Trace() as trace:
        out = call()
        if train:
            torch.autograd.grad(out, leaves_of(out), torch.empty_like(out))
    found = trace.counts(backward=train)
    assert (found.read_weights, found.read_cache, found.written_weights, found.written_cache) == (0, 0, 0, 0)
    return found.read_activations, found.written_activations, found.kernels


def leaves_of(out: Tensor) -> list[Tensor]:
    """What gradients are asked for: all leaves of the graph behind a tensor."""
    nodes = [out.grad_fn]
    for node in nodes:
        nodes += [after for after, _ in node.next_functions if after is not None]
    return [node.variable for node in nodes if hasattr(node, "variable")]


FORWARD: dict[str, tuple[Callable[[], Any], tuple[int, int, int]]] = {
    "residual add": (lambda: X + X, (2 * N * F32, N * F32, 1)),
    "a number": (lambda: X * 2, (N * F32, N * F32, 1)),
    "gain": (lambda: X * meta(D), ((N + D) * F32, N * F32, 1)),
    "expanded": (lambda: X[:, :1].expand(B, T, D) + X, ((B * D + N) * F32, N * F32, 1)),
    "expanded twice": (lambda: meta(1).expand(B, T, D) * 2, (F32, N * F32, 1)),
    "a part": (lambda: WIDE[..., D : 2 * D] * 2, (N * F32, N * F32, 1)),
    "transposed": (lambda: X.mT.exp(), (N * F32, N * F32, 1)),
    "comparison": (lambda: X > 0, (N * F32, N, 1)),
    "choice": (lambda: torch.where(MASK, X, 0.0), (N + N * F32 + F32, N * F32, 1)),
    "cast": (lambda: X.to(torch.bfloat16), (N * F32, N * BF16, 1)),
    "no cast": (lambda: X.to(torch.float32), (0, 0, 0)),
    "sum": (lambda: X.sum(-1), (N * F32, ROWS * F32, 1)),
    "softmax": (lambda: X.softmax(-1), (N * F32, N * F32, 1)),
    "swiglu": (lambda: F.silu(X) * WIDE[..., :D], (3 * N * F32, 2 * N * F32, 2)),
    "joined": (lambda: torch.cat([X, WIDE], -1), (4 * N * F32, 4 * N * F32, 1)),
    "made contiguous": (lambda: X.transpose(0, 1).contiguous(), (N * F32, N * F32, 1)),
    "linear": (lambda: F.linear(X, TABLE, meta(V)), ((N + V * D + V) * F32, ROWS * V * F32, 1)),
    "linear without bias": (lambda: F.linear(X, TABLE), ((N + V * D) * F32, ROWS * V * F32, 1)),
    "in place": (lambda: X.add_(X), (2 * N * F32, N * F32, 1)),
    "copied into": (lambda: X.copy_(NARROW), (N * BF16, N * F32, 1)),
    "drawn into": (lambda: X.uniform_(), (0, N * F32, 1)),
    "drawn": (lambda: torch.rand_like(X), (0, N * F32, 1)),
    "into another": (lambda: torch.mul(X, X, out=meta(B, T, D)), (2 * N * F32, N * F32, 1)),
    "views": (lambda: X.view(-1).unflatten(0, (ROWS, D)).mT.unsqueeze(0).expand(3, D, ROWS).detach()[0], (0, 0, 0)),
    "parts": (lambda: X.chunk(2, -1), (0, 0, 0)),
    "new": (lambda: (meta(3), X.new_zeros(4), torch.ones_like(X), torch.arange(9, device="meta")), (0, 0, 0)),
    "zeroed": (lambda: X.zero_(), (0, 0, 0)),
    "embedding": (lambda: F.embedding(IDS, TABLE), (ROWS * INT + N * F32, N * F32, 1)),
    "rows": (lambda: TABLE[THREE], (3 * INT + 3 * D * F32, 3 * D * F32, 1)),
    "rows by select": (lambda: TABLE.index_select(0, THREE), (3 * INT + 3 * D * F32, 3 * D * F32, 1)),
    "rows into another": (
        lambda: torch.index_select(TABLE, 0, THREE, out=meta(3, D)), (3 * INT + 3 * D * F32, 3 * D * F32, 1)
    ),
    "rows by gather": (lambda: X.gather(1, OTHER), (OTHER.numel() * (INT + F32), OTHER.numel() * F32, 1)),
    "places by take": (lambda: TABLE.take(THREE), (3 * (INT + F32), 3 * F32, 1)),
    "put": (lambda: X.index_copy_(1, THREE, SOME), (3 * INT + SOME.numel() * F32, SOME.numel() * F32, 1)),
    "put and add": (
        lambda: X.index_add_(1, THREE, SOME), (3 * INT + 2 * SOME.numel() * F32, SOME.numel() * F32, 1)
    ),
    "scatter": (
        lambda: X.scatter_(1, OTHER, SOME), (OTHER.numel() * (INT + F32), OTHER.numel() * F32, 1)
    ),
    "scatter a number": (lambda: X.scatter_(1, OTHER, 1.0), (OTHER.numel() * INT, OTHER.numel() * F32, 1)),
    "scatter and add": (
        lambda: X.scatter_add_(1, OTHER, SOME), (OTHER.numel() * (INT + 2 * F32), OTHER.numel() * F32, 1)
    ),
    "scatter and add, not in place": (
        lambda: X.scatter_add(1, OTHER, SOME), (OTHER.numel() * (INT + F32) + N * F32, N * F32, 1)
    ),
    "fill rows": (lambda: X.index_fill_(1, THREE, 0.0), (3 * INT, B * 3 * D * F32, 1)),
    "assign rows": (
        lambda: X.index_put_((ints(4), ints(4)), meta(4, D)), (2 * 4 * INT + 4 * D * F32, 4 * D * F32, 1)
    ),
    "assign a number to rows": (
        lambda: X.__setitem__((slice(None), ints(3, 1)), meta()), (3 * INT + F32, B * 3 * D * F32, 1)
    ),
    "assign and add": (
        lambda: X.index_put_((ints(4),), meta(4, T, D), accumulate=True),
        (4 * INT + 2 * 4 * T * D * F32, 4 * T * D * F32, 1),
    ),
    "layer norm": (lambda: F.layer_norm(X, (D,), meta(D), meta(D)), ((N + 2 * D) * F32, N * F32, 1)),
    "rms norm": (lambda: F.rms_norm(NARROW, (D,), NARROW[0, 0]), ((N + D) * BF16, N * BF16, 1)),
    "dropout": (lambda: F.dropout(X, 0.1), (N * F32, N * F32 + N, 1)),
    "no dropout": (lambda: F.dropout(X, 0.1, training=False), (0, 0, 0)),
    "cross-entropy": (lambda: F.cross_entropy(X.flatten(0, 1), IDS.flatten()), (N * F32 + ROWS * INT, F32, 1)),
    "likelihood": (
        lambda: F.nll_loss(X.flatten(0, 1), IDS.flatten()), (ROWS * (F32 + INT), 2 * F32, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    call, expected = FORWARD[name]
    assert moved(call) == expected


def leaf(*shape: int) -> Tensor:
    return meta(*shape, grad=True)


BACKWARD: dict[str, tuple[Callable[[], Any], tuple[int, int, int]]] = {
    # The gradient itself is that of both summands: nothing is moved.
    "residual add": (lambda: leaf(B, T, D) + leaf(B, T, D), (0, 0, 0)),
    "bias": (lambda: leaf(B, T, D) + leaf(D), (N * F32, D * F32, 1)),
    "relu": (lambda: F.relu(leaf(B, T, D)), (2 * N * F32, N * F32, 1)),
    "gelu": (lambda: F.gelu(leaf(B, T, D)), (2 * N * F32, N * F32, 1)),
    # To the second factor: gradient and silu's result; to silu: gradient and the factor; then silu's own.
    "swiglu": (lambda: F.silu(leaf(B, T, D)) * leaf(B, T, D), (6 * N * F32, 3 * N * F32, 3)),
    "softmax": (lambda: leaf(B, T, D).softmax(-1), (2 * N * F32, N * F32, 1)),
    # To x: gradient and weight; to the weight: gradient and x; to the bias: the gradient.
    "linear": (
        lambda: F.linear(leaf(B, T, D), leaf(V, D), leaf(V)),
        ((3 * ROWS * V + V * D + N) * F32, (N + V * D + V) * F32, 3),
    ),
    "linear without bias": (
        lambda: F.linear(leaf(B, T, D), leaf(V, D)), ((2 * ROWS * V + V * D + N) * F32, (N + V * D) * F32, 2)
    ),
    # Arguments and the gradient once, the gradients that are asked for; no result is read.
    "layer norm": (
        lambda: F.layer_norm(leaf(B, T, D), (D,), leaf(D), leaf(D)), ((2 * N + 2 * D) * F32, (N + 2 * D) * F32, 1)
    ),
    "rms norm": (lambda: F.rms_norm(leaf(B, T, D), (D,), leaf(D)), ((2 * N + D) * F32, (N + D) * F32, 1)),
    "a norm that is not trained": (
        lambda: F.layer_norm(leaf(B, T, D), (D,), meta(D), meta(D)), ((2 * N + 2 * D) * F32, N * F32, 1)
    ),
    "dropout": (lambda: F.dropout(leaf(B, T, D), 0.1), (N * F32 + N, N * F32, 1)),
    # The whole table gets a gradient; a sum over ids reads each of theirs once.
    "embedding": (lambda: F.embedding(IDS, leaf(V, D)), (ROWS * INT + N * F32, V * D * F32, 1)),
    "cross-entropy": (
        lambda: F.cross_entropy(leaf(ROWS, D), IDS.flatten()), ((N + 1) * F32 + ROWS * INT, N * F32, 1)
    ),
    "likelihood": (
        lambda: F.nll_loss(leaf(ROWS, D), IDS.flatten()), (ROWS * INT + 2 * F32, N * F32, 1)
    ),
    "cast": (lambda: leaf(B, T, D).to(torch.bfloat16), (N * BF16, N * F32, 1)),
    "views": (lambda: leaf(B, T, D).transpose(0, 1).unflatten(-1, (2, -1)), (0, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name: str) -> None:
    call, expected = BACKWARD[name]
    assert moved(call, train=True) == expected


def test_bytes_are_told_apart_by_storage() -> None:
    """A weight is a weight through every view of it, in a tied place too; what is computed from it is not."""
    table, linear, x = meta(V, D), nn.Linear(D, 3 * D, device="meta"), meta(B, T, D)
    with Trace(weights=[table, *linear.parameters()]) as trace:
        h = F.embedding(IDS, table)
        F.linear(h, linear.weight[:D], linear.bias[:D])
        h @ table.mT
        table.to(torch.bfloat16) * 2
        x + h
    by_row = [(row.read, row.written) for row in trace.rows if row.kernels]
    assert by_row == [
        (Traffic(weights=N * F32, activations=ROWS * INT), Traffic(activations=N * F32)),
        (Traffic(weights=(D * D + D) * F32, activations=N * F32), Traffic(activations=N * F32)),
        (Traffic(weights=V * D * F32, activations=N * F32), Traffic(activations=ROWS * V * F32)),
        (Traffic(weights=V * D * F32), Traffic(activations=V * D * BF16)),
        (Traffic(activations=V * D * BF16), Traffic(activations=V * D * BF16)),
        (Traffic(activations=2 * N * F32), Traffic(activations=N * F32)),
    ]


def test_gradients_of_weights_are_activations() -> None:
    linear = nn.Linear(D, D, device="meta")
    with Trace(weights=linear.parameters()) as trace:
        out = linear(X)
        torch.autograd.grad(out, list(linear.parameters()), torch.empty_like(out))
    assert trace.counts(True).written_weights == trace.counts(True).read_weights == 0
    assert trace.counts(True).written_activations == (D * D + D) * F32


def test_a_weight_that_is_changed_in_place_is_written() -> None:
    weight = meta(D, D)
    with Trace(weights=[weight]) as trace:
        weight.add_(weight, alpha=-0.1)
    assert (trace.counts().read_weights, trace.counts().written_weights) == (2 * D * D * F32, D * D * F32)


@pytest.mark.parametrize("held", [1, 7])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_cached_step_writes_its_own_entries_and_reads_all(held: int, dtype: torch.dtype) -> None:
    """One query over keys and values (1, 2, S, 8) of the cache: S - 1 held, one new."""
    cache = Cache(1, batch=1, capacity=10, dtype=torch.bfloat16, device="meta")
    (view,) = cache.views
    view.extend(k=meta(1, 2, held, 8, dtype=dtype), v=meta(1, 2, held, 8, dtype=dtype))
    cache.advance(held)
    buffers = [entries.buffer for entries in view._entries.values()]
    q, new = meta(1, 4, 1, 8, dtype=dtype), meta(1, 2, 1, 8, dtype=dtype)
    with Trace(cache=buffers) as trace, torch.no_grad():
        k, v = view.extend(k=new, v=new)
        attend(q, k, v, Visible(causal=True))
    counts, entry, wide = trace.counts(), 2 * 8 * BF16, dtype.itemsize
    assert (counts.written_cache, counts.read_cache) == (2 * entry, 2 * (held + 1) * entry)
    one_head = 8 * wide
    cast = 0 if dtype == torch.bfloat16 else 2 * 2 * (held + 1) * one_head  # held in bfloat16, returned as given
    assert counts.read_activations == 2 * 2 * one_head + 4 * one_head + cast
    assert counts.written_activations == 4 * one_head + cast


def test_a_cache_may_grow_meanwhile() -> None:
    """The addresses of its storages come in while the trace runs: rows so far keep what they were."""
    storages: set[int] = set()
    buffer, state = meta(4, D), meta(2, D)
    with Trace(cache=storages) as trace:
        state * 2
        storages.update({buffer.untyped_storage()._cdata, state.untyped_storage()._cdata})
        buffer[:2].copy_(state)
    counts = trace.counts()
    assert (counts.read_cache, counts.written_cache, counts.read_activations) == (2 * D * F32, 2 * D * F32, 2 * D * F32)


def test_storages_are_not_mistaken_for_later_ones() -> None:
    """What a freed weight or tensor leaves behind may lie at the same address."""
    weight = meta(D)
    with Trace(weights=[weight]) as trace:
        del weight
        for _ in range(50):
            meta(D) * 2
    assert trace.counts().read_weights == 0
