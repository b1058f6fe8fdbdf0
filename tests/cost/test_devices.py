"""The rows of real tensors on a CPU are those of meta tensors: operators, FLOPs, work, bytes, parts and chains."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.assembly.attend import attend
from explorer.assembly.build import build_block
from explorer.assembly.grouped import grouped
from explorer.assembly.index_scores import index_scores
from explorer.assembly.visible import Visible
from explorer.cost.ledger.trace import Trace
from tests.cost.components import COMPONENTS, Installed

B, T, D, H = 2, 6, 16, 4


class Function(nn.Module):
    """A function of x and of parameters of these shapes."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(torch.randn(shape) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (H, -1)).transpose(1, 2)


def attends(visible: Visible, **options: Any) -> Callable[..., Tensor]:
    return lambda x, **tensors: attend(heads(x), heads(x), heads(x), visible, **options, **tensors)


def masked(x: Tensor) -> Tensor:
    mask = torch.arange(T, device=x.device) < T - 1
    return attends(Visible(False))(x, mask=mask)


def in_groups(x: Tensor, weight: Tensor) -> Tensor:
    return grouped(x.flatten(0, 1), weight, torch.arange(4, B * T + 1, 4, dtype=torch.int32, device=x.device))


def scored(x: Tensor, weight: Tensor) -> Tensor:
    return index_scores(heads(x), heads(x)[:, :1], x @ weight, Visible(True))


def loss(x: Tensor) -> Tensor:
    return F.cross_entropy(x.flatten(0, 1), torch.arange(B * T, device=x.device) % D)


def rms_norm_written_out(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


class SelfAttention(nn.Module):
    def __init__(self, need_weights: bool) -> None:
        super().__init__()
        self.inner, self.need_weights = nn.MultiheadAttention(D, H, dropout=0.1, batch_first=True), need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=self.need_weights)[0]


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, 12),
    "feed-forward": lambda: nn.Sequential(nn.Linear(D, 40), nn.GELU(), nn.Dropout(0.1), nn.Linear(40, D)),
    "multi-head attention": lambda: SelfAttention(need_weights=False),
    "multi-head attention, written out": lambda: SelfAttention(need_weights=True),
    "encoder layer": lambda: nn.TransformerEncoderLayer(D, H, 40, batch_first=True),
    "encoder layer, norm first": lambda: nn.TransformerEncoderLayer(D, H, 40, batch_first=True, norm_first=True),
    "attend": lambda: Function(attends(Visible(True))),
    "attend, joined": lambda: Function(lambda x: attends(Visible(True))(x).transpose(1, 2).flatten(2)),
    "attend in a window": lambda: Function(attends(Visible(True, 2))),
    "attend with a mask": lambda: Function(masked),
    "attend with a bias": lambda: Function(lambda x, b: attends(Visible(True))(x, bias=b), (H, T, T)),
    "attend with sinks": lambda: Function(lambda x, s: attends(Visible(True))(x, sinks=s), (H,)),
    "attend with a soft cap": lambda: Function(attends(Visible(True), softcap=3.0)),
    "attend with dropout": lambda: Function(attends(Visible(True), dropout=0.1)),
    "attend with narrow values": lambda: Function(
        lambda x: attend(heads(x), heads(x), heads(x)[..., :2], Visible(True)).transpose(1, 2).flatten(2)
    ),
    "rms norm": lambda: nn.RMSNorm(D, eps=1e-6),
    "rms norm of heads": lambda: Function(lambda x, w: F.rms_norm(heads(x), (4,), w).transpose(1, 2).flatten(2), (4,)),
    "rms norm, written out": lambda: Function(rms_norm_written_out, (D,)),
    "layer norm": lambda: nn.LayerNorm(D),
    "group norm": lambda: Function(lambda x: F.group_norm(x, 2)),
    "softmax": lambda: Function(lambda x: heads(x).softmax(-1)),
    "dropout": lambda: nn.Dropout(0.3),
    "cross-entropy": lambda: Function(loss),
    "grouped": lambda: Function(in_groups, (3, D, 8)),
    "index scores": lambda: Function(scored, (D, H)),
    "convolution": lambda: nn.Conv1d(T, 6, 3, padding=1),
    "einsum": lambda: Function(lambda x, w: torch.einsum("btd,hdk->bhtk", x, w), (H, D, 3)),
    "gather and scatter": lambda: Function(
        lambda x: x.scatter_add(1, torch.zeros(B, T, D, dtype=torch.int64, device=x.device), x.sort(1).values)
    ),
}


def traced(module: nn.Module, x: Tensor, train: bool) -> Trace:
    parameters = list(module.parameters())
    with torch.set_grad_enabled(train), Trace(weights=parameters) as trace:
        with trace.part("part"):
            out = module(x)
        trace.leaves(out)
        if train:
            wanted = [tensor for tensor in (x, *parameters) if tensor.requires_grad]
            found = torch.autograd.grad(out, wanted, torch.ones_like(out), allow_unused=True)
            trace.leaves([grad for grad in found if grad is not None])
    return trace


def assert_same(meta: Trace, real: Trace) -> None:
    for one, other in zip_longest(meta.rows, real.rows):
        assert one == other
    assert meta.counts_by_part() == real.counts_by_part()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
@pytest.mark.parametrize("name", MODULES)
def test_rows_of_a_module(name: str, train: bool, dtype: torch.dtype) -> None:
    real = MODULES[name]().to(dtype).train(train)
    meta = MODULES[name]().to(dtype).train(train).to("meta")
    x = torch.randn(B, T, D, dtype=dtype, requires_grad=train)
    assert_same(traced(meta, x.detach().to("meta").requires_grad_(train), train), traced(real, x, train))


# Its softplus: torch's backward on meta lays its result out as the operand lies, on a CPU as the gradient does.
_LAID_OUT_OTHERWISE = {("attention-kda", True)}


@pytest.mark.parametrize("train", [False, True], ids=["prefill", "train"])
@pytest.mark.parametrize("installed", COMPONENTS, ids=str)
def test_rows_of_a_block_with_any_component(installed: Installed, train: bool) -> None:
    dtype = torch.float32 if train else torch.bfloat16
    dropout = {"dropout": {"attention": 0.1, "activation": 0.1, "sublayer": 0.1}}
    plan = installed.plan({"placement": installed.placements[0], **(dropout if train else {})})
    name = next(iter(plan.stack.blocks))
    blocks = {device: build_block(plan, name, device=device, dtype=dtype).train(train) for device in ("meta", "cpu")}
    x = torch.randn(B, T, plan.dim, dtype=dtype, requires_grad=train)
    meta = traced(blocks["meta"], x.detach().to("meta").requires_grad_(train), train)
    real = traced(blocks["cpu"], x, train)
    if (str(installed), train) in _LAID_OUT_OTHERWISE:
        assert meta.counts().matmul_flops == real.counts().matmul_flops
        assert meta.counts().elementwise_ops == real.counts().elementwise_ops
        return
    assert_same(meta, real)
