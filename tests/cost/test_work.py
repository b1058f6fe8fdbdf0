"""Element-wise operations against counts by hand: one per output element, in a reduction one per input element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.cost.ledger.rows import Work
from explorer.cost.ledger.rules import RULES
from explorer.cost.ledger.trace import Trace
from explorer.cost.ledger.work import _BESIDE_PRODUCTS

B, T, D = 2, 5, 16
N, ROWS = B * T * D, B * T


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def ints(*shape: int) -> Tensor:
    return meta(*shape, dtype=torch.int64)


def work(call: Callable[[Tensor], Any], train: bool = False) -> tuple[Work, Work]:
    """Of the forward and of the backward of a call on (B, T, D)."""
    x = meta(B, T, D, grad=train)
    with Trace() as trace:
        out = call(x)
        if train:
            torch.autograd.backward([out], [torch.empty_like(out)])
    assert trace.counts().incomplete == ()
    found = [trace.counts(backward) for backward in (False, True)]
    forward, backward = (Work(c.cheap_ops, c.transcendental_ops, c.reduction_ops) for c in found)
    return forward, backward


def written_out_rms_norm(x: Tensor) -> Tensor:
    wide = x.float()
    return meta(D) * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


def written_out_layer_norm(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + 1e-5) * meta(D) + meta(D)


CHEAP: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + x,
    "add a number": lambda x: x + 1,
    "in place": lambda x: x.mul_(2),
    "multiply": lambda x: x * meta(D),
    "divide": lambda x: x / 2,
    "negate": lambda x: -x,
    "relu": F.relu,
    "leaky relu": F.leaky_relu,
    "hard swish": F.hardswish,
    "clamp": lambda x: x.clamp(0, 1),
    "square": torch.square,
    "cube": lambda x: x**3,
    "compare": lambda x: x > 0,
    "choose": lambda x: torch.where(meta(B, T, D, dtype=torch.bool), x, 0.0),
    "fill where masked": lambda x: x.masked_fill(meta(T, D, dtype=torch.bool), 0.0),
    "three at once": lambda x: torch.addcmul(x, x, x),
    "complex numbers": lambda x: meta(B, T, D, dtype=torch.complex64) * meta(B, T, D, dtype=torch.complex64),
    "draw": lambda x: x.bernoulli_(0.5),
    "outer product": lambda x: meta(B, T, D, 1) * meta(1),
}
TRANSCENDENTAL: dict[str, Callable[[Tensor], Any]] = {
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "log sigmoid": F.logsigmoid,
    "in place": lambda x: x.exp_(),
    "root": lambda x: x**0.5,
    "odd power": lambda x: x**2.5,
    "large power": lambda x: x**7,
    "power of tensors": lambda x: x**x,
    "special": torch.special.erfcx,
}
FREE: dict[str, Callable[[Tensor], Any]] = {
    "views": lambda x: x.view(B, T * D).unflatten(-1, (T, D)).transpose(1, 2).unsqueeze(0).expand(3, B, D, T)[0, 1:],
    "casts": lambda x: x.to(torch.bfloat16).float(),
    "copies": lambda x: torch.cat([x.clone(), x], 1).repeat(1, 2, 1).flip(1).roll(1).tril(),
    "padding": lambda x: F.pad(x, (1, 0)),
    "gathers": lambda x: (x.gather(-1, ints(B, T, 3)), x[:, ints(3)], x.index_select(1, ints(3))),
    "embedding": lambda x: F.embedding(ints(B, T), meta(30, D)),
    "new tensors": lambda x: (torch.zeros_like(x), x.new_full((3,), 1.0), torch.arange(4, device="meta")),
    "put": lambda x: x.index_copy_(1, ints(2), meta(B, 2, D)).scatter_(1, ints(B, 2, D), meta(B, 2, D)),
    "nearest": lambda x: F.interpolate(x, 4),
}


@pytest.mark.parametrize("name", CHEAP)
def test_one_cheap_operation_per_output_element(name: str) -> None:
    assert work(CHEAP[name])[0] == Work(cheap=N)


@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_transcendental_ones_are_one_per_element_too(name: str) -> None:
    assert work(TRANSCENDENTAL[name])[0] == Work(transcendental=N)


@pytest.mark.parametrize("name", FREE)
def test_what_only_moves_is_no_operation(name: str) -> None:
    assert work(FREE[name])[0] == Work()


MIXED: dict[str, tuple[Callable[[Tensor], Any], Work]] = {
    "broadcast": (lambda x: x[:, :1] * x, Work(cheap=N)),
    "sum": (lambda x: x.sum(), Work(reduction=N)),
    "mean of rows": (lambda x: x.mean(-1), Work(reduction=N)),
    "variance": (lambda x: x.var(-1), Work(reduction=N)),
    "maximum": (lambda x: x.max(-1).values, Work(reduction=N)),
    "any": (lambda x: x.any(-1), Work(reduction=N)),
    "running sum": (lambda x: x.cumsum(-1), Work(reduction=N)),
    "norm": (lambda x: x.norm(dim=-1), Work(reduction=N)),
    "best": (lambda x: x.topk(3, -1), Work(reduction=N)),
    "softmax": (lambda x: x.softmax(-1), Work(2 * N, N, 2 * N)),
    "log softmax": (lambda x: x.log_softmax(-1), Work(2 * N, N, 2 * N)),
    "rms norm": (lambda x: F.rms_norm(x, (D,), meta(D)), Work(cheap=3 * N, reduction=N)),
    "rms norm without gain": (lambda x: F.rms_norm(x, (D,)), Work(cheap=2 * N, reduction=N)),
    "layer norm": (lambda x: F.layer_norm(x, (D,), meta(D), meta(D)), Work(cheap=5 * N, reduction=2 * N)),
    "layer norm without shift": (lambda x: F.layer_norm(x, (D,), meta(D)), Work(cheap=4 * N, reduction=2 * N)),
    "layer norm, bare": (lambda x: F.layer_norm(x, (D,)), Work(cheap=3 * N, reduction=2 * N)),
    "group norm": (lambda x: F.group_norm(x, 5, meta(T), meta(T)), Work(cheap=5 * N, reduction=2 * N)),
    "batch norm": (
        lambda x: F.batch_norm(x, None, None, meta(T), meta(T), training=True), Work(cheap=5 * N, reduction=2 * N)
    ),
    "batch norm with given statistics": (
        lambda x: F.batch_norm(x, meta(T), meta(T), meta(T), meta(T)), Work(cheap=4 * N)
    ),
    # square N, mean N, eps and root of each row, times root N, times gain N.
    "rms norm, written out": (written_out_rms_norm, Work(cheap=3 * N + ROWS, transcendental=ROWS, reduction=N)),
    # mean N, minus N, square N, mean N, eps and root of each row, divided N, gain N, shift N.
    "layer norm, written out": (
        written_out_layer_norm, Work(cheap=5 * N + ROWS, transcendental=ROWS, reduction=2 * N)
    ),
    "swiglu": (lambda x: F.silu(x) * x, Work(cheap=N, transcendental=N)),
    "residual add": (lambda x: x + meta(B, T, D), Work(cheap=N)),
    "linear": (lambda x: F.linear(x, meta(12, D), meta(12)), Work(cheap=ROWS * 12)),
    "linear without bias": (lambda x: F.linear(x, meta(12, D)), Work()),
    "convolution": (lambda x: F.conv1d(x, meta(6, T, 3), meta(6), padding=1), Work(cheap=B * 6 * D)),
    "convolution without bias": (lambda x: F.conv1d(x, meta(6, T, 3)), Work()),
    "dropout": (lambda x: F.dropout(x, 0.1), Work(cheap=2 * N)),
    "no dropout": (lambda x: F.dropout(x, 0.1, training=False), Work()),
    "cross-entropy": (lambda x: F.cross_entropy(x.flatten(0, 1), ints(ROWS)), Work(2 * N, N, 2 * N)),
    "negative log likelihood": (lambda x: F.nll_loss(x.flatten(0, 1), ints(ROWS)), Work(reduction=ROWS)),
    "squared error": (lambda x: F.mse_loss(x, x), Work(reduction=N)),
    "scatter and add": (lambda x: x.scatter_add(1, ints(B, 3, D), meta(B, 3, D)), Work(reduction=B * 3 * D)),
    "index and add": (lambda x: x.index_add_(1, ints(3), meta(B, 3, D)), Work(reduction=B * 3 * D)),
    "put and add": (
        lambda x: x.index_put_((ints(1), ints(1)), meta(1, D), accumulate=True), Work(reduction=D)
    ),
    "pool": (lambda x: F.avg_pool1d(x, 2), Work(reduction=N)),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_forward(name: str) -> None:
    call, expected = MIXED[name]
    assert work(call)[0] == expected


BACKWARD: dict[str, tuple[Callable[[Tensor], Any], Work]] = {
    "residual add": (lambda x: x + 1, Work()),
    "broadcast add": (lambda x: x + meta(D, grad=True), Work(reduction=N)),
    "relu": (F.relu, Work(cheap=N)),
    "gelu": (F.gelu, Work(transcendental=N)),
    "silu": (F.silu, Work(transcendental=N)),
    "tanh": (torch.tanh, Work(cheap=N)),
    "multiply": (lambda x: x * meta(B, T, D, grad=True), Work(cheap=2 * N)),
    # of silu: times the other operand, and its own; of the product: times silu's result.
    "swiglu": (lambda x: F.silu(x) * meta(B, T, D, grad=True), Work(cheap=2 * N, transcendental=N)),
    "sum": (lambda x: x.sum(), Work()),
    "mean": (lambda x: x.mean(-1), Work(cheap=N)),
    "softmax": (lambda x: x.softmax(-1), Work(4 * N, 2 * N, 4 * N)),
    "rms norm": (lambda x: F.rms_norm(x, (D,), meta(D, grad=True)), Work(cheap=6 * N, reduction=2 * N)),
    "layer norm": (
        lambda x: F.layer_norm(x, (D,), meta(D, grad=True), meta(D, grad=True)),
        Work(cheap=10 * N, reduction=4 * N),
    ),
    "layer norm by its operator": (
        lambda x: torch.native_layer_norm(x, (D,), meta(D, grad=True), meta(D, grad=True), 1e-5)[0],
        Work(cheap=10 * N, reduction=4 * N),
    ),
    "linear": (lambda x: F.linear(x, meta(12, D, grad=True), meta(12, grad=True)), Work(reduction=ROWS * 12)),
    "linear without bias": (lambda x: F.linear(x, meta(12, D, grad=True)), Work()),
    "convolution": (
        lambda x: F.conv1d(x, meta(6, T, 3, grad=True), meta(6, grad=True), padding=1), Work(reduction=B * 6 * D)
    ),
    "dropout": (lambda x: F.dropout(x, 0.1), Work(cheap=N)),
    "cross-entropy": (lambda x: F.cross_entropy(x.flatten(0, 1), ints(ROWS)), Work(4 * N, 2 * N, 4 * N)),
    "embedding": (lambda x: F.embedding(ints(B, T), meta(30, D, grad=True)), Work(reduction=N)),
    "gather": (lambda x: x[:, ints(3)], Work(reduction=B * 3 * D)),
}  # fmt: skip


@pytest.mark.parametrize("name", BACKWARD)
def test_backward(name: str) -> None:
    call, expected = BACKWARD[name]
    assert work(call, train=True)[1] == expected


def test_the_axes_of_a_block_differ() -> None:
    """What other counters show as 0."""
    norms = [work(nn.LayerNorm(D, device="meta")), work(nn.RMSNorm(D, eps=1e-6, device="meta"))]
    activations = [work(F.relu), work(F.gelu), work(lambda x: F.silu(x) * x)]
    assert [forward.total for forward, _ in norms] == [7 * N, 4 * N]
    assert [forward for forward, _ in activations] == [Work(N), Work(0, N), Work(N, N)]


def test_products_with_work_beside_are_products() -> None:
    assert {f"aten::{name}" for name in _BESIDE_PRODUCTS} <= set(RULES)
