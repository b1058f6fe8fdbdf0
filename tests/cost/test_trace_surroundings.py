"""The trace around checkpoints, custom functions, compiled modules, unknown operators and pauses."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from explorer.assembly.attend import attend
from explorer.assembly.visible import Visible
from explorer.cost.ledger.free import FAMILIES
from explorer.cost.ledger.rules import RULES
from explorer.cost.ledger.trace import Trace
from explorer.cost.ledger.traffic import TRAFFIC
from explorer.cost.ledger.work import WORK

CAUSAL = Visible(causal=True)
LINEAR, CORE, VISIBLE = 2 * 10 * 8 * 8, 4 * 2 * 25 * 8, 4 * 2 * 15 * 8
"""FLOPs on x (2, 5, 8): one 8 x 8 map; one head's core, all pairs and the visible ones."""


def meta(*shape: int, grad: bool = False) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=grad)


def products(trace: Trace) -> tuple[int, int | None]:
    """FLOPs of all pairs and of the visible ones; nothing may be left uncounted."""
    found = trace.counts()
    assert found.incomplete == ()
    return found.matmul_flops, found.matmul_flops_exact


class Attention(nn.Module):
    """One causal head, 8 wide: four maps and a core."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(8, 24, device="meta"), nn.Linear(8, 8, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        return self.o(attend(q, k, v, CAUSAL).squeeze(1))


def tensor_backward(y: Tensor, module: nn.Module) -> None:
    y.backward(torch.empty_like(y))


def autograd_backward(y: Tensor, module: nn.Module) -> None:
    torch.autograd.backward([y], [torch.empty_like(y)])


def autograd_grad(y: Tensor, module: nn.Module) -> None:
    torch.autograd.grad(y, list(module.parameters()), torch.empty_like(y))


CHECKPOINTS: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], int, tuple[int, int]]] = {
    # name: (call, maps computed again, core FLOPs computed again: all pairs, visible ones)
    "none": (lambda module, x: module(x), 0, (0, 0)),
    "reentrant": (lambda module, x: checkpoint(module, x, use_reentrant=True), 4, (CORE, VISIBLE)),
    # The last map's input is the last thing that backward asks for: the map itself is not run again.
    "early stop": (lambda module, x: checkpoint(module, x, use_reentrant=False), 3, (CORE, VISIBLE)),
}


@pytest.mark.parametrize(
    ("name", "run_backward"),
    [
        (name, run_backward)
        for name in CHECKPOINTS
        for run_backward in (tensor_backward, autograd_backward, autograd_grad)
        if (name, run_backward) != ("reentrant", autograd_grad)  # torch refuses
    ],
)
def test_checkpoints_count_what_runs_again(name: str, run_backward: Callable[[Tensor, nn.Module], None]) -> None:
    call, maps, (core, visible) = CHECKPOINTS[name]
    module, x = Attention(), meta(2, 5, 8, grad=True)
    with Trace() as trace:
        run_backward(call(module, x), module)
    unasked = 3 * LINEAR if run_backward is autograd_grad else 0  # the gradient of x
    linear = (12 + maps) * LINEAR - unasked
    assert products(trace) == (linear + 3 * CORE + core, linear + 3 * VISIBLE + visible)


def test_a_checkpoint_around_attention_alone_runs_it_again() -> None:
    x = meta(2, 1, 5, 8, grad=True)
    with Trace() as trace:
        tensor_backward(checkpoint(attend, x, x, x, CAUSAL, use_reentrant=False), nn.Module())
    rows = [(row.op, row.backward) for row in trace.rows if row.matmul_flops]
    assert rows == [("attend", False), ("attend", True), ("attend_backward", True)]


class Gated(torch.autograd.Function):
    """x @ w; its gradient passes through an attention, to see what a custom backward calls."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        mixed = F.scaled_dot_product_attention(grad, grad, grad, is_causal=True)
        return mixed @ w.mT, torch.einsum("bti,bto->io", x, mixed)


@pytest.mark.parametrize("run_backward", [tensor_backward, autograd_backward])
def test_a_custom_function_counts_both_ways(run_backward: Callable[[Tensor, nn.Module], None]) -> None:
    x, w = meta(2, 5, 8, grad=True), meta(8, 8, grad=True)
    with Trace() as trace:
        run_backward(Gated.apply(x, w), nn.Module())
    assert products(trace) == (3 * LINEAR + CORE, 3 * LINEAR + VISIBLE)


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_modules_run_eagerly(in_place: bool) -> None:
    module = Attention()
    if in_place:
        module.compile(backend="eager")
    else:
        module = torch.compile(module, backend="eager")
    with Trace() as trace:
        module(meta(2, 5, 8))
    assert products(trace) == (4 * LINEAR + CORE, 4 * LINEAR + VISIBLE)


def test_a_transform_takes_attention_apart() -> None:
    q = meta(3, 2, 1, 5, 8)
    with Trace() as trace:
        torch.vmap(lambda q: attend(q, q, q, CAUSAL))(q)
    totals = trace.counts()
    assert (totals.matmul_flops, totals.matmul_flops_exact) == (3 * CORE, None)
    assert totals.exact_reason == "attend was taken apart: its products are counted without its mask"


def test_real_tensors_keep_their_values_and_gradients() -> None:
    q = torch.randn(2, 1, 5, 8, requires_grad=True)
    plain = attend(q, q, q, CAUSAL)
    (expected,) = torch.autograd.grad(plain.square().sum(), q)
    with Trace() as trace:
        out = attend(q, q, q, CAUSAL)
        (found,) = torch.autograd.grad(out.square().sum(), q)
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(found, expected)
    assert products(trace) == (3 * CORE, 3 * VISIBLE)


def test_pause_records_nothing() -> None:
    module, x = Attention(), meta(2, 5, 8, grad=True)
    with Trace() as trace:
        with trace.pause():
            y = module(x)
        assert trace.rows == []
        tensor_backward(y, module)
    assert products(trace) == (2 * (4 * LINEAR + CORE), 2 * (4 * LINEAR + VISIBLE))
    assert all(row.backward for row in trace.rows if row.matmul_flops)


def test_rows_stand_in_order_of_execution() -> None:
    module, x = Attention(), meta(2, 5, 8)
    with Trace() as trace:
        module(x)
    products = [(row.op, row.matmul_flops) for row in trace.rows if row.matmul_flops]
    assert products == [("aten::addmm", 3 * LINEAR), ("attend", CORE), ("aten::addmm", LINEAR)]


def test_an_error_inside_ends_the_trace() -> None:
    left, right = meta(2, 3), meta(3, 2)
    with Trace() as trace, pytest.raises(RuntimeError, match="reduction dim"):
        left @ left
    left @ right
    assert trace.rows == []


@torch.library.custom_op("explorer_test_lab::mix", mutates_args=())
def mix(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


@mix.register_fake
def _(x: Tensor, w: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[1])


@torch.library.custom_op("explorer_test_lab::scaled", mutates_args=(), tags=(torch.Tag.pointwise,))
def scaled(x: Tensor) -> Tensor:
    return 2 * x


@scaled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def scan(x: Tensor) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda kept, a: (kept @ a, kept.clone()), x[0], x, dim=0)


UNKNOWN: dict[str, Callable[[], Any]] = {
    "explorer_test_lab::mix x2": lambda: [mix(meta(3, 4), meta(4, 5)) for _ in range(2)],
    "explorer_test_lab::scaled x1": lambda: scaled(meta(3)),
    "aten::linalg_inv_ex x1": lambda: torch.linalg.inv(meta(3, 3)),
    "aten::linalg_solve_triangular x1": lambda: torch.linalg.solve_triangular(meta(3, 3), meta(3, 2), upper=True),
    "aten::linalg_cholesky_ex x1": lambda: torch.linalg.cholesky(meta(3, 3)),
    "aten::_fft_r2c x1": lambda: torch.fft.rfft(meta(3, 8)),
    "aten::_cdist_forward x1": lambda: torch.cdist(meta(3, 4), meta(5, 4)),
    "aten::_trilinear x1": lambda: F.bilinear(meta(3, 4), meta(3, 5), meta(6, 4, 5)),
    "higher_order::scan x1": lambda: scan(meta(3, 4, 4)),
}


@pytest.mark.parametrize("listed", UNKNOWN)
def test_an_unknown_operator_is_listed_with_its_calls(listed: str) -> None:
    with Trace() as trace:
        meta(2, 3) @ meta(3, 4)
        UNKNOWN[listed]()
    assert listed in [f"{op} x{calls}" for op, calls in trace.counts().incomplete]
    assert trace.counts().matmul_flops == 48


FREE: list[Callable[[Tensor], Any]] = [
    lambda x: F.rms_norm(x, (8,), x[0, 0]),
    lambda x: F.layer_norm(x, (8,), x[0, 0], x[0, 0]),
    lambda x: F.group_norm(x, 5),
    lambda x: F.batch_norm(x, meta(5), meta(5), training=True),
    lambda x: torch._weight_norm(x, meta(2, 1, 1), 0),
    lambda x: F.normalize(x, dim=-1),
    *(
        lambda x, f=f: f(x)
        for f in (F.relu, F.gelu, F.silu, F.glu, F.elu, F.selu, F.softplus, F.mish, F.hardswish, F.leaky_relu,
                  F.logsigmoid, F.hardtanh, F.softsign, F.relu6, torch.tanh, torch.sigmoid, torch.erf, torch.exp,
                  torch.rsqrt, torch.square, torch.abs)
    ),
    lambda x: F.prelu(x, meta(5)),
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: F.rrelu(x, training=True),
    lambda x: F.softmax(x, -1) + F.log_softmax(x, -1),
    lambda x: F.gumbel_softmax(x, dim=-1),
    lambda x: F.dropout(x, 0.1) + F.alpha_dropout(x, 0.1, training=True),
    lambda x: F.cross_entropy(x.flatten(0, 1), torch.zeros(10, dtype=torch.long, device="meta")),
    lambda x: F.mse_loss(x, x + 1) + F.smooth_l1_loss(x, x + 1) + F.kl_div(x, x.exp(), reduction="batchmean"),
    lambda x: F.binary_cross_entropy_with_logits(x, x.sigmoid()),
    lambda x: F.embedding(torch.zeros(2, dtype=torch.long, device="meta"), x[0]),
    lambda x: F.one_hot(torch.zeros(2, dtype=torch.long, device="meta"), 4) + x.sum(),
    lambda x: x.sort(-1).values + x.topk(8, -1).values + x.argsort(-1),
    lambda x: x.cumsum(-1) + x.cumprod(-1) + x.logcumsumexp(-1) + x.cummax(-1).values,
    lambda x: x.max(-1).values + x.amin(-1) + x.median(-1).values + x.logsumexp(-1) + x.norm(dim=-1) + x.var(-1),
    lambda x: x.gather(-1, x.argmax(-1, keepdim=True)),
    lambda x: x.scatter_add(-1, torch.zeros(2, 5, 8, dtype=torch.long, device="meta"), x),
    lambda x: x.index_add(0, torch.zeros(2, dtype=torch.long, device="meta"), x),
    lambda x: x[torch.zeros(3, dtype=torch.long, device="meta")],
    lambda x: x.index_select(0, torch.zeros(3, dtype=torch.int, device="meta")),
    lambda x: x.masked_fill(x > 0, 0.0).where(x < 1, x).clamp(0, 1).lerp(x, 0.5),
    lambda x: torch.cat([x, x], 1).flip(1).roll(1, 1).repeat(1, 2, 1).repeat_interleave(2, 1).tril(),
    lambda x: torch.stack(x.split(2, -1)).unfold(-1, 2, 1).to(torch.float64),
    lambda x: F.pad(x, (1, 0)) + F.pad(x, (1, 0), mode="replicate") + F.pad(x, (1, 0), mode="reflect"),
    lambda x: F.avg_pool1d(x, 2) + F.max_pool1d(x, 2) + F.adaptive_avg_pool1d(x, 4) + F.interpolate(x, 4),
    lambda x: torch.outer(x[0, 0], x[0, 1]) + torch.polar(x[0, 0], x[0, 1]).abs(),
    lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (4, 2))) * 1j),
    lambda x: torch.arange(8, device="meta") + torch.rand_like(x).bernoulli() + torch.randn(8, device="meta") * x,
    lambda x: x.clone().add_(1).mul_(x).zero_().copy_(x).masked_fill_(x > 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(FREE)))
def test_what_holds_no_product_is_free_both_ways(index: int) -> None:
    x = meta(2, 5, 8, grad=True)
    with Trace() as trace:
        tensor_backward(FREE[index](x), nn.Module())
    assert products(trace) == (0, 0)
    assert any(row.backward for row in trace.rows)


def test_families_and_rules_name_registered_operators_once() -> None:
    """Those of torch, whose namespace is left out here, and our own."""
    importlib.import_module("explorer.assembly.grouped")  # registers them
    names = [name for family in FAMILIES.values() for name in family]
    ruled = {name.removeprefix("aten::") for name in RULES}
    assert len(names) == len(set(names))
    assert not ruled & set(names)
    known = {full.split(".")[0].removeprefix("aten::") for full in torch._C._dispatch_get_all_op_names()}
    assert (set(names) | ruled) - known == set()
    assert {name for name in ruled if "::" in name} == {"explorer::grouped", "explorer::grouped_outer"}
    # Rules for work and bytes are looked up by name too.
    assert {name.removesuffix("_") for name in (*WORK, *TRAFFIC)} - {name.removesuffix("_") for name in known} == set()


def test_importing_the_trace_does_not_import_the_compiler() -> None:
    code = "import sys, explorer.cost.ledger.trace, explorer.cost.active; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
