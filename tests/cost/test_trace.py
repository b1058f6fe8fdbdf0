"""The trace against torch's own counter on meta, closed forms, and the reported bugs of other counters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from explorer.assembly.attend import attend
from explorer.assembly.visible import Visible
from explorer.cost.ledger.trace import Trace

B, T, S, D = 2, 5, 7, 16


class Products(NamedTuple):
    """What the counts say about matrix products."""

    matmul_flops: int
    matmul_flops_exact: int | None
    exact_reason: str | None = None
    incomplete: tuple[str, ...] = ()


def meta(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta", requires_grad=grad)


def backward(out: Any) -> None:
    first = out[0] if isinstance(out, tuple) else out
    torch.autograd.backward([first], [torch.empty_like(first)])


def traced(call: Callable[[], Any], train: bool = False) -> Trace:
    with Trace() as trace:
        out = call()
        if train:
            backward(out)
    return trace


def counts(call: Callable[[], Any], train: bool = False) -> Products:
    found = traced(call, train).counts()
    incomplete = tuple(f"{op} x{calls}" for op, calls in found.incomplete)
    return Products(found.matmul_flops, found.matmul_flops_exact, found.exact_reason, incomplete)


def by_torch(call: Callable[[], Any], train: bool = False) -> int:
    with FlopCounterMode(display=False) as counter:
        out = call()
        if train:
            backward(out)
    return counter.get_total_flops()


class Module(nn.Module):
    """A function of x, and of a parameter of each shape or of each module."""

    def __init__(self, function: Callable[..., Tensor], *needs: tuple[int, ...] | nn.Module) -> None:
        super().__init__()
        self.function = function
        self.modules_ = nn.ModuleList(need for need in needs if isinstance(need, nn.Module))
        self.weights = nn.ParameterList(torch.empty(need) for need in needs if isinstance(need, tuple))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.modules_, *self.weights)


def split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (4, -1)).transpose(1, 2)  # (B, T, D) -> (B, heads, T, D / heads)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(D, 12),
    "linear without bias": lambda: nn.Linear(D, 12, bias=False),
    "feed-forward": lambda: nn.Sequential(nn.Linear(D, 40), nn.GELU(), nn.Linear(40, D)),
    "layernorm": lambda: nn.LayerNorm(D),
    "rmsnorm": lambda: nn.RMSNorm(D),
    "matmul": lambda: Module(lambda x, w: x @ w, (D, 12)),
    "einsum": lambda: Module(lambda x, w: torch.einsum("btd,hdk->bhtk", x, w), (4, D, 3)),
    "einsum over streams": lambda: Module(lambda x, w: torch.einsum("btd,sd->bts", x, w), (4, D)),
    "bmm": lambda: Module(lambda x, w: torch.bmm(x, w), (B, D, 3)),
    "baddbmm": lambda: Module(lambda x, w, b: torch.baddbmm(b, x, w), (B, D, 3), (B, T, 3)),
    "attend": lambda: Module(lambda x: attend(split(x), split(x), split(x), Visible(True, 2))),
    "attend with cap and sinks": lambda: Module(
        lambda x, s: attend(split(x), split(x), split(x), Visible(True), softcap=3.0, sinks=s), (4,)
    ),
    "attend with a bias": lambda: Module(
        lambda x, b: attend(split(x), split(x), split(x), Visible(False), bias=b), (4, T, T)
    ),
    "sdpa": lambda: Module(lambda x: F.scaled_dot_product_attention(split(x), split(x), split(x), is_causal=True)),
    "multi-head attention": lambda: Module(lambda x, m: m(x, x, x)[0], nn.MultiheadAttention(D, 4, batch_first=True)),
    "encoder layer": lambda: nn.TransformerEncoderLayer(D, 4, 40, batch_first=True),
    "decoder layer": lambda: Module(lambda x, m: m(x, x), nn.TransformerDecoderLayer(D, 4, 40, batch_first=True)),
    "convolution": lambda: nn.Conv1d(T, 6, 3, padding=1),
    "grouped query": lambda: Module(lambda x: attend(split(x), split(x)[:, :2], split(x)[:, :2], Visible(True))),
    "lstm": lambda: Module(lambda x, m: m(x)[0], nn.LSTM(D, 6, batch_first=True)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
@pytest.mark.parametrize("name", MODULES)
def test_dense_products_are_those_of_flop_counter_mode(name: str, train: bool, dtype: torch.dtype) -> None:
    with torch.device("meta"):
        module = MODULES[name]().to(dtype).to("meta").train(train)
    x = meta(B, T, D, dtype=dtype, grad=train)
    found = counts(lambda: module(x), train)
    assert found.matmul_flops == by_torch(lambda: module(x), train)
    assert found.incomplete == ()


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 9), st.integers(0, 9),
    st.integers(1, 5), st.integers(1, 5), st.booleans(), st.none() | st.integers(1, 12),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_attend_is_one_row_each_way(
    batch: int, kv_heads: int, group: int, T: int, held: int, k: int, v: int, causal: bool, window: int | None
) -> None:
    S, heads, visible = T + held, kv_heads * group, Visible(causal, window)
    q = meta(batch, heads, T, k, grad=True)
    key, value = meta(batch, kv_heads, S, k, grad=True), meta(batch, kv_heads, S, v, grad=True)
    trace = traced(lambda: attend(q, key, value, visible), train=True)
    rows = [row for row in trace.rows if row.matmul_flops]
    dense, exact = 2 * batch * heads * T * S * (k + v), 2 * batch * heads * (k + v) * int(visible.mask(T, S).sum())
    assert [(row.op, row.matmul_flops, row.matmul_flops_exact, row.backward) for row in rows] == [
        ("attend", dense, exact, False),
        ("attend_backward", 2 * dense, 2 * exact, True),
    ]
    assert by_torch(lambda: attend(q, key, value, visible), train=True) == 3 * dense


@given(st.integers(1, 4), st.integers(1, 6), st.lists(st.integers(1, 9), min_size=2, max_size=5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_stack_of_linear_maps(batch: int, tokens: int, widths: list[int], bias: bool) -> None:
    pairs = list(itertools.pairwise(widths))
    stack = nn.Sequential(*(nn.Linear(i, o, bias=bias, device="meta") for i, o in pairs))
    x = meta(batch, tokens, widths[0], grad=True)
    forward = sum(2 * batch * tokens * i * o for i, o in pairs)
    assert counts(lambda: stack(x)).matmul_flops == forward
    assert counts(lambda: stack(x), train=True) == Products(3 * forward, 3 * forward)


ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "attend": lambda q, k, v: attend(q, k, v, Visible(True)),
    "attend with a mask": lambda q, k, v: attend(q, k, v, Visible(False), mask=meta(T, S, dtype=torch.bool)),
    "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "sdpa by keyword": lambda q, k, v: F.scaled_dot_product_attention(query=q, key=k, value=v, is_causal=True),
    "aten": lambda q, k, v: torch.ops.aten.scaled_dot_product_attention(q, k, v),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_a_fused_result_is_the_functions_own(name: str) -> None:
    q, k, v = meta(B, 4, T, 8, grad=True), meta(B, 4, S, 8, grad=True), meta(B, 4, S, 6)
    plain = ATTENTIONS[name](q, k, v)
    with Trace():
        out = ATTENTIONS[name](q, k, v)
        out.backward(torch.empty_like(out))
    assert (out.shape, out.stride(), out.dtype, out.requires_grad) == (plain.shape, plain.stride(), plain.dtype, True)
    assert q.grad is not None
    assert k.grad is not None
    assert (q.grad.shape, k.grad.shape, v.grad) == (q.shape, k.shape, None)


def test_a_bias_and_sinks_get_their_gradients() -> None:
    q, bias, sinks = meta(B, 4, T, 8), meta(4, T, T, grad=True), meta(4, grad=True)
    with Trace():
        backward(attend(q, q, q, Visible(True), bias=bias, sinks=sinks))
    assert bias.grad is not None
    assert sinks.grad is not None


MASKS: dict[str, Callable[[Tensor], Any]] = {
    "attend": lambda x: attend(split(x), split(x), split(x), Visible(True), mask=meta(T, T, dtype=torch.bool)),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(
        split(x), split(x), split(x), meta(T, T, dtype=torch.bool)
    ),
    "multi_head_attention_forward": lambda x: nn.MultiheadAttention(D, 4, batch_first=True, device="meta")(
        x, x, x, attn_mask=meta(T, T, dtype=torch.bool)
    ),
    "scaled_dot_product_attention without weights": lambda x: nn.MultiheadAttention(D, 4, device="meta").eval()(
        x, x, x, attn_mask=meta(B, B, dtype=torch.bool), need_weights=False
    ),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("train", [False, True])
def test_a_mask_tensor_leaves_the_exact_count_open(name: str, train: bool) -> None:
    x = meta(B, T, D, grad=True)
    found = counts(lambda: MASKS[name](x), train)
    assert found.matmul_flops == by_torch(lambda: MASKS[name](x), train)
    assert found.matmul_flops_exact is None
    assert found.exact_reason == f"{name.split()[0]} got a mask tensor: the pairs it hides are unknown"
    assert found.incomplete == ()


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multi_head_attention_keeps_its_core(need_weights: bool, train: bool) -> None:
    """B3: with need_weights=False other counters on a CPU lose it, and eval has a fast path that hides everything."""
    module = nn.MultiheadAttention(64, 4, bias=False, batch_first=True, device="meta").train(train)
    x, context = meta(2, 10, 64), meta(2, 25, 64)
    with torch.set_grad_enabled(train):
        found = counts(lambda: module(x, context, context, need_weights=need_weights))
    assert found == Products(1_274_880, 1_274_880)


@pytest.mark.parametrize("padded", [False, True])
def test_no_fast_path_hides_an_encoder(padded: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, 4, 40, batch_first=True, device="meta")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    padding = meta(B, T, dtype=torch.bool) if padded else None
    with torch.no_grad():
        found = counts(lambda: encoder(meta(B, T, D), src_key_padding_mask=padding))
    per_layer = 2 * B * T * (4 * D * D + 2 * D * 40) + 4 * B * T * T * D
    assert found.matmul_flops == 2 * per_layer
    assert found.matmul_flops_exact == (None if padded else 2 * per_layer)


@pytest.mark.parametrize("fused", [True, False])
def test_fused_and_written_out_attention_agree(fused: bool) -> None:
    """B1: 4 * 12 * 64^2 * 64 both ways."""
    q = meta(1, 12, 64, 64)
    written = lambda: torch.softmax(q @ q.transpose(-2, -1), -1) @ q  # noqa: E731
    assert counts((lambda: F.scaled_dot_product_attention(q, q, q)) if fused else written).matmul_flops == 12_582_912


EXACT = [  # (T, S, k, v, visible, dense, exact)
    (64, 64, 64, 64, Visible(True), 1_048_576, 532_480),
    (64, 64, 64, 64, Visible(True, 8), 1_048_576, 123_904),
    (4, 10, 8, 16, Visible(True), 1920, 1632),
    (4, 10, 8, 16, Visible(False), 1920, 1920),
]


@pytest.mark.parametrize(("T", "S", "k", "v", "visible", "dense", "exact"), EXACT)
def test_exact_is_visible(T: int, S: int, k: int, v: int, visible: Visible, dense: int, exact: int) -> None:
    """B4: aligned bottom-right where T != S."""
    found = counts(lambda: attend(meta(1, 1, T, k), meta(1, 1, S, k), meta(1, 1, S, v), visible))
    assert found == Products(dense, exact)


def test_causal_sdpa_is_aligned_top_left() -> None:
    """B4: what is_causal means to torch with T = 4, S = 10: 1 + 2 + 3 + 4 pairs."""
    q, k, v = meta(1, 1, 4, 8), meta(1, 1, 10, 8), meta(1, 1, 10, 16)
    assert counts(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)) == Products(1920, 480)
    more_queries = counts(lambda: F.scaled_dot_product_attention(k, q, v[..., :4, :], None, 0, True))
    assert more_queries.matmul_flops_exact == 2 * (1 + 2 + 3 + 4 + 6 * 4) * 24


def test_key_and_value_widths_may_differ() -> None:
    """B6: the core of a multi-head latent attention, 2 h T^2 (48 + 32)."""
    q, v = meta(1, 4, 16, 48), meta(1, 4, 16, 32)
    assert counts(lambda: attend(q, q, v, Visible(False))).matmul_flops == 163_840


def test_flops_not_multiply_adds() -> None:
    """B7."""
    assert counts(lambda: nn.Linear(64, 64, bias=False, device="meta")(meta(1, 10, 64))).matmul_flops == 81_920


def test_a_module_called_three_times_counts_three_times() -> None:
    """B9."""
    shared = nn.Linear(100, 100, device="meta")
    parts = meta(1, 300).chunk(3, -1)
    assert counts(lambda: [shared(part) for part in parts]).matmul_flops == 60_000


SPELLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "@": lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v,
    "bmm": lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.mT), -1), v),
    "einsum": lambda q, k, v: torch.einsum("bts,bsd->btd", torch.softmax(torch.einsum("btd,bsd->bts", q, k), -1), v),
    "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_every_spelling_counts_alike(spelling: str, mode: Callable[[], Any]) -> None:
    """B10, with and without autograd, which decides how far torch takes a call apart by itself."""
    x, weights = meta(2, 20, 64), [meta(64, 64) for _ in "qkv"]
    with mode():
        found = counts(lambda: SPELLINGS[spelling](*(F.linear(x, weight) for weight in weights)))
    assert found == Products(1_187_840, 1_187_840)


def test_batch_and_tokens_scale() -> None:
    """B12: projections with the tokens, the core with their square."""
    assert counts(lambda: nn.Linear(64, 256, device="meta")(meta(1, 22528, 64))).matmul_flops == 2 * 369_098_752
    block = nn.MultiheadAttention(64, 4, bias=False, batch_first=True, device="meta")
    for tokens, flops in ((128, 8_388_608), (256, 25_165_824)):
        x = meta(1, tokens, 64)
        assert counts(lambda x=x: block(x, x, x)).matmul_flops == flops


@pytest.mark.parametrize("heads", [4, 8])
def test_heads_alone_change_nothing(heads: int) -> None:
    """B13."""
    x = meta(1, 300, 448)
    module = nn.MultiheadAttention(448, heads, batch_first=True, device="meta")
    assert counts(lambda: module(x, x, x)).matmul_flops == 642_969_600


CONVOLUTIONS = [  # module, input shape, multiply-adds of a forward
    (lambda: nn.Conv1d(8, 12, 3), (2, 8, 10), 2 * 12 * 8 * 8 * 3),
    (lambda: nn.Conv1d(8, 8, 4, padding=3, groups=8), (2, 8, 10), 2 * 8 * 13 * 4),
    (lambda: nn.Conv2d(4, 6, (3, 2), groups=2, stride=2), (2, 4, 9, 8), 2 * 6 * 4 * 4 * 2 * 6),
    (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2, stride=2), (2, 4, 5), 2 * 4 * 5 * 3 * 3),
]


@pytest.mark.parametrize(("make", "shape", "macs"), CONVOLUTIONS)
@pytest.mark.parametrize("input_grad", [True, False])
def test_convolutions(make: Callable[[], nn.Module], shape: tuple[int, ...], macs: int, input_grad: bool) -> None:
    """2 x outputs x C_in / groups x K, and once more for each gradient; FlopCounterMode errs for groups."""
    module = make().to("meta")
    x = meta(*shape, grad=input_grad)
    assert counts(lambda: module(x)).matmul_flops == 2 * macs
    assert counts(lambda: module(x), train=True).matmul_flops == 2 * macs * (3 if input_grad else 2)


def test_vectors_and_rarer_products() -> None:
    a, b, vector = meta(B, 3, D), meta(B, D, 4), meta(D)
    offsets = meta(2, dtype=torch.int32)
    half = {"dtype": torch.bfloat16}
    table: list[tuple[Callable[[], Tensor], int]] = [
        (lambda: torch.dot(vector, vector), 2 * D),
        (lambda: torch.vdot(vector, vector), 2 * D),
        (lambda: torch.mv(a[0], vector), 2 * 3 * D),
        (lambda: torch.addmv(meta(3), a[0], vector), 2 * 3 * D),
        (lambda: torch.addbmm(meta(3, 4), a, b), 2 * B * 3 * D * 4),
        (lambda: meta(3, 4).addmm_(a[0], b[0]), 2 * 3 * D * 4),
        (lambda: torch.mm(a[0], b[0], out=meta(3, 4)), 2 * 3 * D * 4),
        (lambda: torch.outer(vector, vector), 0),
        (lambda: F.grouped_mm(meta(6, D, **half), meta(2, D, 8, **half), offs=offsets), 2 * 6 * D * 8),
        (lambda: F.grouped_mm(meta(8, D, **half), meta(D, 16, **half), offs=offsets), 2 * 8 * D * 16),
        (lambda: F.grouped_mm(meta(2, 8, D, **half), meta(2, D, 8, **half)), 2 * 2 * 8 * D * 8),
        (lambda: F.grouped_mm(meta(2, 8, D, **half), meta(D, 16, **half), offs=offsets), 2 * 8 * D * 16),
    ]
    for call, flops in table:
        assert counts(call) == Products(flops, flops)


def test_grouped_products_backward_is_twice_the_forward() -> None:
    x, w = meta(8, D, dtype=torch.bfloat16, grad=True), meta(2, D, 8, dtype=torch.bfloat16, grad=True)
    call = lambda: F.grouped_mm(x, w, offs=meta(2, dtype=torch.int32))  # noqa: E731
    assert counts(call, train=True).matmul_flops == 3 * counts(call).matmul_flops == 3 * 2 * 8 * D * 8


def test_an_attention_kernel_called_by_itself() -> None:
    q = meta(1, 2, 8, 16, grad=True)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    dense, exact = 4 * 2 * 64 * 16, 4 * 2 * 36 * 16
    assert counts(lambda: kernel(q, q, q, 0.0, True), train=True) == Products(3 * dense, 3 * exact)
