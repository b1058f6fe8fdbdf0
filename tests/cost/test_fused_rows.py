"""Functions that are one row each way: their work and bytes by hand, their values and gradients as without a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils.checkpoint import checkpoint

from explorer.assembly.attend import attend
from explorer.assembly.grouped import grouped
from explorer.assembly.index_scores import index_scores
from explorer.assembly.visible import Visible
from explorer.cost.ledger.rows import Row, Traffic, Work
from explorer.cost.ledger.trace import Trace

B, H, KV, T, S, K, V = 2, 4, 2, 5, 7, 8, 6
F32 = 4


def tensor(*shape: int, device: str = "meta", grad: bool = True, dtype: torch.dtype = torch.float32) -> Tensor:
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype, device=device)
    return torch.randn(shape, dtype=dtype, device=device).requires_grad_(grad and dtype.is_floating_point)


@dataclass(frozen=True)
class Case:
    """A fused call: its operands by name, what it computes per visible pair or element, and how many of those."""

    call: Callable[..., Tensor]
    operands: dict[str, Any]
    work: Work
    kind: str = "fused"
    keeps_output: bool = False

    def made(self, device: str) -> dict[str, Tensor]:
        torch.manual_seed(0)
        made = {name: o(device) if callable(o) else tensor(*o, device=device) for name, o in self.operands.items()}
        return made


QKV = {"q": (B, H, T, K), "k": (B, KV, S, K), "v": (B, KV, S, V)}
CAUSAL, WINDOW, ALL = Visible(True), Visible(True, 2), Visible(False)
CAUSAL_PAIRS, WINDOW_PAIRS = 3 + 4 + 5 + 6 + 7, 2 * 5  # the first of 5 queries stands behind 2 keys
SOFTMAX = Work(2, 1, 2)


def attention(pairs: int, more: Work = Work()) -> Work:  # noqa: B008
    return (SOFTMAX + more) * (B * H * pairs)


def hidden_last(device: str) -> Tensor:
    return torch.arange(S, device=device).expand(T, S) < S - 1


def targets(device: str) -> Tensor:
    return torch.arange(T, device=device)


def ends(device: str) -> Tensor:
    return torch.tensor([3, 3, 16], dtype=torch.int32, device=device)


CASES: dict[str, Case] = {
    "attend": Case(lambda q, k, v: attend(q, k, v, CAUSAL), QKV, attention(CAUSAL_PAIRS), keeps_output=True),
    "attend in a window": Case(
        lambda q, k, v: attend(q, k, v, WINDOW), QKV, attention(WINDOW_PAIRS), keeps_output=True
    ),
    "attend to all": Case(lambda q, k, v: attend(q, k, v, ALL), QKV, attention(T * S), keeps_output=True),
    "attend with a mask": Case(
        lambda q, k, v, mask: attend(q, k, v, CAUSAL, mask=mask),
        {**QKV, "mask": hidden_last}, attention(CAUSAL_PAIRS), keeps_output=True,
    ),
    "attend with a bias": Case(
        lambda q, k, v, bias: attend(q, k, v, CAUSAL, bias=bias),
        {**QKV, "bias": (H, T, S)}, attention(CAUSAL_PAIRS, Work(cheap=1)), keeps_output=True,
    ),
    "attend with sinks": Case(
        lambda q, k, v, sinks: attend(q, k, v, CAUSAL, sinks=sinks),
        {**QKV, "sinks": (H,)}, attention(CAUSAL_PAIRS), keeps_output=True,
    ),
    "attend with a soft cap": Case(
        lambda q, k, v: attend(q, k, v, CAUSAL, softcap=3.0),
        QKV, attention(CAUSAL_PAIRS, Work(transcendental=1)), keeps_output=True,
    ),
    "attend by keyword": Case(
        lambda q, k, v: attend(q=q, k=k, v=v, visible=CAUSAL, scale=0.1), QKV, attention(CAUSAL_PAIRS),
        keeps_output=True,
    ),
    "sdpa": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), QKV, attention(T * S),
        keeps_output=True,
    ),
    "sdpa, causal": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        dict.fromkeys("qkv", (B, H, T, K)), attention(15), keeps_output=True,
    ),
    "sdpa with a mask of numbers": Case(
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True),
        {**QKV, "mask": (T, S)}, attention(T * S, Work(cheap=1)), keeps_output=True,
    ),
    "sdpa, causal from the first key": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal_upper_left(T, S), enable_gqa=True),
        QKV, attention(15), keeps_output=True,
    ),
    "sdpa, causal up to the last key": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(T, S), enable_gqa=True),
        QKV, attention(CAUSAL_PAIRS), keeps_output=True,
    ),
    "index scores": Case(
        lambda q, k, weight: index_scores(q, k, weight, CAUSAL),
        {"q": (B, H, T, K), "k": (B, 1, S, K), "weight": (B, T, H)}, Work(cheap=B * H * CAUSAL_PAIRS),
    ),
    "grouped": Case(
        lambda x, weight, offsets: grouped(x, weight, offsets),
        {"x": (16, 16), "weight": (3, 16, 24), "offsets": ends}, Work(), kind="product",
    ),
    "rms norm": Case(
        lambda x, weight: F.rms_norm(x, (K,), weight, 1e-6),
        {"x": (B, T, K), "weight": (K,)}, Work(3, 0, 1) * (B * T * K), kind="norm",
    ),
    "rms norm of torch itself": Case(
        lambda x, weight: torch.rms_norm(x, (K,), weight, 1e-6),
        {"x": (B, T, K), "weight": (K,)}, Work(3, 0, 1) * (B * T * K), kind="norm",
    ),
    "layer norm of torch itself": Case(
        lambda x, weight: torch.layer_norm(x, (K,), weight, None, 1e-5, False),
        {"x": (B, T, K), "weight": (K,)}, Work(4, 0, 2) * (B * T * K), kind="norm",
    ),
    "layer norm": Case(
        lambda x, weight, bias: F.layer_norm(x, (T, K), weight, bias),
        {"x": (B, T, K), "weight": (T, K), "bias": (T, K)}, Work(5, 0, 2) * (B * T * K), kind="norm",
    ),
    "layer norm without gain": Case(
        lambda x: F.layer_norm(x, (K,)), {"x": (B, T, K)}, Work(3, 0, 2) * (B * T * K), kind="norm"
    ),
    "cross-entropy": Case(
        lambda logits, targets: F.cross_entropy(logits, targets, ignore_index=0, label_smoothing=0.1),
        {"logits": (T, V), "targets": targets}, SOFTMAX * (T * V), kind="loss",
    ),
}  # fmt: skip


def both_ways(case: Case, device: str) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
    """Result, operands and their gradients."""
    operands = case.made(device)
    out = case.call(**operands)
    wanted = [operand for operand in operands.values() if operand.requires_grad]
    torch.manual_seed(1)
    return out, operands, list(torch.autograd.grad(out, wanted, torch.randn(out.shape, device=device)))


def traced(case: Case, device: str = "meta") -> tuple[Trace, Tensor, dict[str, Tensor], list[Tensor]]:
    with Trace() as trace:
        with trace.pause():
            operands = case.made(device)
        out = case.call(**operands)
        wanted = [operand for operand in operands.values() if operand.requires_grad]
        with trace.pause():
            torch.manual_seed(1)
            grad = torch.randn(out.shape, device=device)
        grads = list(torch.autograd.grad(out, wanted, grad))
    return trace, out, operands, grads


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_one_row_each_way(name: str, device: str) -> None:
    case = CASES[name]
    trace, out, operands, grads = traced(case, device)
    forward, backward = trace.rows
    read, written = sum(t.nbytes for t in operands.values()), out.nbytes
    assert (forward.kind, forward.kernels, forward.backward, forward.counted) == (case.kind, 1, False, True)
    assert (forward.work, forward.read, forward.written) == (
        case.work, Traffic(activations=read), Traffic(activations=written)
    )  # fmt: skip
    # Backward reads what forward read, the gradient and, an attention, its result; it writes the gradients asked for.
    again = read + written + (written if case.keeps_output else 0)
    assert (backward.op, backward.kind, backward.kernels) == (f"{forward.op}_backward", case.kind, 1)
    assert (backward.work, backward.read) == (case.work * 2, Traffic(activations=again))
    assert backward.written == Traffic(activations=sum(grad.nbytes for grad in grads))
    assert backward.matmul_flops == 2 * forward.matmul_flops


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_as_without_a_trace(name: str) -> None:
    expected, _, expected_grads = both_ways(CASES[name], "cpu")
    _, out, _, grads = traced(CASES[name], "cpu")
    torch.testing.assert_close(out, expected, rtol=0, atol=0)
    for found, wanted in zip(grads, expected_grads, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_shapes_on_meta_are_those_of_real_tensors(name: str) -> None:
    """Strides too: they decide what is copied later."""
    _, real, _, real_grads = traced(CASES[name], "cpu")
    _, meta, _, meta_grads = traced(CASES[name], "meta")
    likes = [[(t.shape, t.stride(), t.dtype) for t in found] for found in ([real, *real_grads], [meta, *meta_grads])]
    assert likes[0] == likes[1]


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_an_attention_lies_as_its_query_does(device: str) -> None:
    """As the kernels of CUDA and CPU leave it: to join its heads again copies nothing."""
    x = tensor(B, T, H, K, device=device, grad=False).transpose(1, 2)
    for call in (lambda: attend(x, x, x, ALL), lambda: F.scaled_dot_product_attention(x, x, x)):
        with Trace() as trace:
            y = call()
            y.transpose(1, 2).flatten(2)
        assert [row.kind for row in trace.rows if row.kernels] == ["fused"]
        assert y.stride() == x.stride()
    real = torch.randn(B, T, H, K).transpose(1, 2)
    assert F.scaled_dot_product_attention(real, real, real).stride() == x.stride()


@pytest.mark.parametrize("asked", ["q", "kv"])
def test_only_gradients_that_are_asked_for_are_written(asked: str) -> None:
    operands = {name: tensor(*shape, grad=name in asked) for name, shape in QKV.items()}
    with Trace() as trace:
        out = attend(*operands.values(), CAUSAL)
        torch.autograd.grad(out, [operands[name] for name in asked], torch.empty_like(out))
    assert trace.rows[-1].written.total == sum(operands[name].nbytes for name in asked)


@pytest.mark.parametrize(("asked", "products"), [(("x",), 1), (("weight",), 1), (("x", "weight"), 2)])
def test_products_by_group_are_one_for_each_gradient(asked: tuple[str, ...], products: int) -> None:
    x, weight, offsets = CASES["grouped"].made("meta").values()
    with Trace() as trace:
        out = grouped(x.requires_grad_("x" in asked), weight.requires_grad_("weight" in asked), offsets)
        torch.autograd.grad(out, [{"x": x, "weight": weight}[name] for name in asked], torch.empty_like(out))
    forward, backward = (row.matmul_flops for row in trace.rows if row.matmul_flops)
    assert backward == products * forward


@pytest.mark.parametrize(("rows", "met"), [(0, 0), (1, 1), (2, 2), (8, 8), (9, 8)])
def test_of_groups_those_are_read_that_rows_can_be_of(rows: int, met: int) -> None:
    """A token reads the experts that it goes to, not all of them; in backward too."""
    x, weight = tensor(rows, 16, grad=True), tensor(8, 16, 24)
    offsets = torch.empty(8, dtype=torch.int32, device="meta")
    with Trace(weights=[weight]) as trace:
        torch.autograd.grad(grouped(x, weight, offsets), x, tensor(rows, 24))
    assert [row.read.weights for row in trace.rows if row.kind == "product"] == [met * 16 * 24 * weight.itemsize] * 2
    with Trace(weights=[weight]) as trace, torch.no_grad():
        torch.ops.explorer.grouped(x, weight, offsets)
    assert trace.rows[-1].read.weights == met * 16 * 24 * weight.itemsize


def test_attention_with_dropout_keeps_its_mask_in_backward() -> None:
    """On real tensors the gradient is that of the result, whatever was drawn: here linear in v."""
    v = tensor(B, KV, S, V, device="cpu")
    q, k = tensor(B, H, T, K, device="cpu", grad=False), tensor(B, KV, S, K, device="cpu", grad=False)
    with Trace() as trace:
        out = attend(q, k, v, CAUSAL, dropout=0.5)
        (grad,) = torch.autograd.grad(out.sum(), v)
    torch.testing.assert_close((grad * v).sum(), out.sum())
    row = next(row for row in trace.rows if row.op == "attend")
    assert row.work == attention(CAUSAL_PAIRS, Work(cheap=2))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_graph_may_be_run_twice(device: str) -> None:
    x = tensor(B, T, K, device=device)
    with Trace() as trace:
        out = F.rms_norm(x, (K,))
        first, second = (torch.autograd.grad(out, x, torch.ones_like(out), retain_graph=True)[0] for _ in range(2))
    assert [row.op for row in trace.rows if row.kind == "norm"] == [
        "rms_norm",
        "rms_norm_backward",
        "rms_norm_backward",
    ]
    if device == "cpu":
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_under_a_checkpoint_it_runs_again(device: str, reentrant: bool) -> None:
    def layer(x: Tensor) -> Tensor:
        return F.layer_norm(attend(x, x, x, CAUSAL), (K,)).relu()

    x = tensor(B, H, T, K, device=device)
    with Trace() as trace:
        out = checkpoint(layer, x, use_reentrant=reentrant)
        out.backward(torch.ones_like(out))
    rows = [(row.op, row.backward) for row in trace.rows if row.kind in ("fused", "norm")]
    assert rows == [
        ("attend", False), ("layer_norm", False),
        ("attend", True), ("layer_norm", True), ("layer_norm_backward", True), ("attend_backward", True),
    ]  # fmt: skip
    if device == "cpu":
        (wanted,) = torch.autograd.grad(layer(x).sum(), x)
        torch.testing.assert_close(x.grad, wanted)


def test_a_backward_that_is_differentiated_is_a_row_without_a_rule() -> None:
    """A gain g of a norm n(x) that is squared: every gradient is asked for twice."""
    x, gain = tensor(B, T, K), tensor(K)
    with Trace() as trace:
        (slope,) = torch.autograd.grad(F.rms_norm(x, (K,), gain).square().sum(), x, create_graph=True)
        grads = torch.autograd.grad(slope.square().sum(), (x, gain))
    assert [grad.shape for grad in grads] == [x.shape, gain.shape]
    assert trace.counts().incomplete == (("rms_norm_backward_backward", 1),)
    names = [row.op for row in trace.rows if row.op.startswith("rms_norm")]
    assert names == ["rms_norm", "rms_norm_backward", "rms_norm_backward_backward", "rms_norm_backward"]
    x = tensor(B, T, K, device="cpu")
    with Trace():
        (slope,) = torch.autograd.grad(F.rms_norm(x, (K,)).square().sum(), x, create_graph=True)
        with pytest.raises(NotImplementedError, match="cannot differentiate rms_norm twice"):
            torch.autograd.grad(slope.sum(), x)


@pytest.mark.parametrize(("bias", "pairs"), [(causal_upper_left, 15), (causal_lower_right, CAUSAL_PAIRS)])
def test_a_causal_bias_says_which_pairs_it_shows(bias: Callable[[int, int], Any], pairs: int) -> None:
    q, k, v = (tensor(*shape) for shape in ((B, H, T, K), (B, H, S, K), (B, H, S, V)))
    with Trace() as trace:
        F.scaled_dot_product_attention(q, k, v, bias(T, S))
    counts, per_pair = trace.counts(), 2 * B * H * (K + V)
    assert (counts.matmul_flops, counts.matmul_flops_exact) == (per_pair * T * S, per_pair * pairs)
    assert bias(T, S).shape == (bias(T, S).variant, T, S), "torch's class is as it was"
    with Trace(), pytest.raises(ValueError, match="CausalBias should not be used with causal=True"):
        F.scaled_dot_product_attention(q, k, v, bias(T, S), is_causal=True)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_a_fused_call_saves_its_operands_only(name: str, device: str) -> None:
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.untyped_storage()._cdata)
        return tensor

    operands = CASES[name].made(device)
    with Trace(), torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        CASES[name].call(**operands)
    assert sorted(saved) == sorted(tensor.untyped_storage()._cdata for tensor in operands.values())


WRONG: list[tuple[Callable[[], Tensor], str]] = [
    (lambda: F.rms_norm(tensor(B, T, K), (K + 1,)), "normalized_shape"),
    (lambda: F.layer_norm(tensor(B, T, K), (K,), tensor(K + 1)), "weight"),
    (lambda: F.scaled_dot_product_attention(tensor(B, H, T, K), tensor(B, H, S, K + 1), tensor(B, H, S, V)), "size"),
    (lambda: F.scaled_dot_product_attention(tensor(B, H, T, K), tensor(B, KV, S, K), tensor(B, KV, S, V)), "size"),
    (lambda: attend(tensor(B, H, T, K), tensor(B, H, S, K), tensor(B, H, S + 1, V), ALL), "size"),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_operands_that_do_not_fit_are_refused_by_torch(index: int) -> None:
    """No rule about shapes is left out because nothing is computed on meta."""
    call, text = WRONG[index]
    with Trace(), pytest.raises((RuntimeError, ValueError), match=text):
        call()


def test_functions_of_rarer_shapes_are_torchs_own() -> None:
    calls: list[Callable[[], Tensor]] = [
        lambda: F.scaled_dot_product_attention(tensor(T, K), tensor(S, K), tensor(S, V)),
        lambda: F.scaled_dot_product_attention(tensor(B, 1, T, K), tensor(1, H, S, K), tensor(1, H, S, V)),
        lambda: F.layer_norm(tensor(B, T, K).mT, (T,)),
    ]
    for call in calls:
        plain = call()
        with Trace() as trace:
            found = call()
        assert (found.shape, found.dtype) == (plain.shape, plain.dtype)
        rows: list[Row] = [row for row in trace.rows if row.kind in ("fused", "norm")]
        assert len(rows) == 1


def test_a_norm_of_two_dtypes_is_what_it_is_made_of() -> None:
    """Torch has no kernel for it, and warns of that."""
    x, gain = tensor(B, T, K, dtype=torch.bfloat16), tensor(K)
    with Trace() as trace, pytest.warns(UserWarning, match="Mismatch dtype"):
        F.rms_norm(x, (K,), gain)
    assert "rms_norm" not in [row.op for row in trace.rows]
    assert trace.counts().kernels > 4
