"""Products by group against all matrices gathered row by row; gradients by finite differences in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import explorer
import explorer.assembly.grouped as home
from explorer import grouped
from explorer.cost.ledger.trace import Trace

CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SIZES = {  # rows of each group, k, n
    "one row": ((0, 1, 0), 8, 16),
    "strides that torch takes": ((3, 0, 9, 4), 16, 24),
    "strides that torch refuses": ((3, 0, 9, 4), 7, 5),
    "every group empty": ((0, 0, 0), 8, 16),
    "one group": ((6,), 8, 8),
    "more groups than rows": ((0, 1, 0, 0, 2, 0, 0, 0), 8, 16),
}
LAYOUTS: Mapping[str, Callable[[int, int, int], Tensor]] = {
    "(groups, k, n)": torch.randn,
    "as nn.Linear": lambda groups, k, n: torch.randn(groups, n, k).mT,
}


def operands(
    counts: tuple[int, ...], k: int, n: int, layout: str = "as nn.Linear", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(sum(counts), k).to(dtype)
    weight = LAYOUTS[layout](len(counts), k, n).to(dtype)
    return x, weight, torch.tensor(counts).cumsum(0).int()


def gathered(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """The same with a matrix for each row, in float64."""
    counts = torch.diff(offsets, prepend=torch.zeros(1, dtype=torch.int32))
    own = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return torch.einsum("ik,ikn->in", x.double(), weight.double()[own])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_each_row_meets_the_matrix_of_its_group(dtype: torch.dtype, size: str, layout: str) -> None:
    x, weight, offsets = operands(*SIZES[size], layout, dtype)
    out = grouped(x, weight, offsets)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), gathered(x, weight, offsets), rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("counts", [(2, 0, 3), (0, 1, 0, 0), (0, 0)])
def test_gradients_and_theirs(counts: tuple[int, ...], layout: str) -> None:
    x, weight, offsets = operands(counts, 3, 4, layout, torch.float64)
    inputs = x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, weight: grouped(x, weight, offsets), inputs)
    if len(x):
        assert torch.autograd.gradgradcheck(lambda x, weight: grouped(x, weight, offsets), inputs)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_gradients_in_every_dtype(dtype: torch.dtype, size: str, layout: str) -> None:
    x, weight, offsets = operands(*SIZES[size], layout, dtype)
    inputs = x.requires_grad_(), weight.requires_grad_()
    target = torch.randn(len(x), weight.shape[2]).to(dtype)
    came = torch.autograd.grad((grouped(x, weight, offsets) * target).sum(), inputs)
    wanted = torch.autograd.grad((gathered(x, weight, offsets) * target.double()).sum(), inputs)
    torch.testing.assert_close(came, wanted, rtol=CLOSE[dtype], atol=2 * CLOSE[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradient_of_a_sum_in_the_layout_of_the_parameter(dtype: torch.dtype) -> None:
    """A gradient with strides of 0, which F.grouped_mm's backward refuses; and no copy of it for the parameter."""
    counts, k, n = SIZES["strides that torch takes"]
    x, _, offsets = operands(counts, k, n, dtype=dtype)
    parameter = torch.nn.Parameter(torch.randn(len(counts), n, k, dtype=dtype))
    grouped(x, parameter.mT, offsets).sum().backward()
    wanted = torch.stack([rows.double().sum(0).expand(n, k) for rows in x.split(counts)])
    torch.testing.assert_close(parameter.grad.double(), wanted, rtol=CLOSE[dtype], atol=CLOSE[dtype])
    assert parameter.grad.stride() == parameter.stride()


@pytest.mark.parametrize("operator", ["grouped", "grouped_outer"])
def test_operators_keep_what_torch_asks_of_one(operator: str) -> None:
    x, weight, offsets = operands(*SIZES["strides that torch refuses"])
    second = weight if operator == "grouped" else torch.randn(len(x), 5)
    torch.library.opcheck(
        getattr(torch.ops.explorer, operator).default, (x.requires_grad_(), second.requires_grad_(), offsets)
    )


def test_meta_needs_no_values() -> None:
    x, weight, offsets = (t.to("meta") for t in operands(*SIZES["strides that torch takes"]))
    out = grouped(x.requires_grad_(), weight.requires_grad_(), offsets)
    assert (out.shape, out.dtype, out.is_meta) == ((16, 24), torch.float32, True)
    out.sum().backward()
    assert (x.grad.shape, weight.grad.shape) == (x.shape, weight.shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiles_whole_with_gradients(dtype: torch.dtype) -> None:
    torch.compiler.reset()
    compiled = torch.compile(grouped, fullgraph=True, backend="aot_eager")
    for size in ("strides that torch takes", "more groups than rows"):
        gradients = []
        for call in (grouped, compiled):
            x, weight, offsets = operands(*SIZES[size], dtype=dtype)
            out = call(x.requires_grad_(), weight.requires_grad_(), offsets)
            out.square().sum().backward()
            gradients.append((out, x.grad, weight.grad))
        torch.testing.assert_close(gradients[1], gradients[0])
    torch.compiler.reset()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_it_does_for_a_linear_map(dtype: torch.dtype, compiled: bool) -> None:
    torch.compiler.reset()
    call = torch.compile(grouped, fullgraph=True, backend="aot_eager") if compiled else grouped
    x, weight, offsets = operands(*SIZES["strides that torch takes"])
    low, low_weight = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype):
        out = call(x.requires_grad_(), weight.requires_grad_(), offsets)
        mixed = call(low.detach(), weight, offsets)
    wanted = grouped(low, low_weight, offsets)
    for came in (out, mixed):
        torch.testing.assert_close(came, wanted, rtol=0, atol=0)
    target = torch.randn(wanted.shape).to(dtype)
    (out * target).sum().backward()
    (wanted * target).sum().backward()
    torch.testing.assert_close(x.grad, low.grad.float(), rtol=0, atol=0)
    torch.testing.assert_close(weight.grad, low_weight.grad.float(), rtol=0, atol=0)
    torch.compiler.reset()


def test_autocast_leaves_float64() -> None:
    given = operands(*SIZES["one group"], dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(grouped(*given), gathered(*given))


@pytest.mark.parametrize("size", ["strides that torch takes", "strides that torch refuses"])
@pytest.mark.parametrize("offsets", [(3, 3, 12, 15), (3, 3, 12, 17), (3, 2, 12, 16), (-1, 3, 12, 16)], ids=str)
def test_offsets_of_other_rows(size: str, offsets: tuple[int, ...]) -> None:
    x, weight, _ = operands(*SIZES[size])
    with pytest.raises(ValueError, match=r"offsets that rise to the 16 rows of x, not \["):
        grouped(x, weight, torch.tensor(offsets).int())


def test_a_function_mode_sees_one_call() -> None:
    class Sees(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return "taken" if func is grouped else func(*args, **(kwargs or {}))

    given = operands(*SIZES["one group"])
    with Sees():
        assert grouped(*given) == "taken"
    assert grouped is explorer.grouped


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_counts_2nkn_and_twice_that_backward(device: str) -> None:
    """One row each way, with values too."""
    x, weight, offsets = (t.to(device) for t in operands(*SIZES["strides that torch takes"]))
    with Trace() as trace:
        grouped(x.requires_grad_(), weight.requires_grad_(), offsets).sum().backward()
    products = [(row.op, row.matmul_flops, row.backward) for row in trace.rows if row.matmul_flops]
    forward = 2 * 16 * 16 * 24
    assert trace.totals().incomplete == ()
    assert products == [("grouped", forward, False), ("grouped_backward", 2 * forward, True)]


def test_by_its_operators_each_is_a_row() -> None:
    x, weight, offsets = operands(*SIZES["strides that torch takes"])
    with Trace() as trace:
        torch.ops.explorer.grouped(x.requires_grad_(), weight.requires_grad_(), offsets).sum().backward()
    forward = 2 * 16 * 16 * 24
    assert [(row.op, row.matmul_flops, row.backward) for row in trace.rows if row.matmul_flops] == [
        ("explorer::grouped", forward, False),
        ("explorer::grouped", forward, True),
        ("explorer::grouped_outer", forward, True),
    ]


def test_torchs_counter_says_0() -> None:
    with FlopCounterMode(display=False) as counter:
        grouped(*operands(*SIZES["strides that torch takes"]))
    assert counter.get_total_flops() == 0


def test_empty_groups_have_no_gradient_where_torch_leaves_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytorch/pytorch#172439, played on the CPU."""
    torchs = F.grouped_mm

    def blackwells(left: Tensor, right: Tensor, *, offs: Tensor) -> Tensor:
        out = torchs(left, right, offs=offs)
        return out if right.dim() == 3 else torch.where((out == 0).all(-1).all(-1)[:, None, None], torch.nan, out)

    x, weight, offsets = operands(*SIZES["strides that torch takes"])
    gradients = []
    for capability in ((0, 0), (10, 0)):
        monkeypatch.setattr(home, "_capability", lambda device, found=capability: found)
        (gradient,) = torch.autograd.grad(grouped(x, weight.requires_grad_(), offsets).sum(), weight)
        gradients.append(gradient)
        monkeypatch.setattr(F, "grouped_mm", blackwells)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
    assert not gradients[1][1].any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, w, o: (x.double(), w, o), r"one dtype, not \(16, 16\) torch.float64 and \(4, 16, 24\)"),
        (lambda x, w, o: (x[:, 1:], w, o), r"not \(16, 15\) torch.float32 and \(4, 16, 24\) torch.float32"),
        (lambda x, w, o: (x, w[0], o), r"not \(16, 16\) torch.float32 and \(16, 24\) torch.float32"),
        (lambda x, w, o: (x, w, o[1:]), r"offsets of shape \(4,\) in int32, not \(3,\) torch.int32"),
        (lambda x, w, o: (x, w, o.long()), r"offsets of shape \(4,\) in int32, not \(4,\) torch.int64"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operands_that_do_not_fit(change: Callable[..., Any], said: str, device: str) -> None:
    given = (t.to(device) for t in operands(*SIZES["strides that torch takes"]))
    with pytest.raises(ValueError, match=said):
        grouped(*change(*given))
