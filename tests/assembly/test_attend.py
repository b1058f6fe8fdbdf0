"""The attention core against its formula in float64, written here head by head."""

from itertools import product

import pytest
import torch
from torch.overrides import TorchFunctionMode

from explorer import Visible, attend
from explorer.errors import UsageError

HEADS, K_DIM, V_DIM = 4, 8, 6
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def reference(q, k, v, visible, *, mask=None, bias=None, scale=None, softcap=None, sinks=None):
    """sum_j exp(s_ij) v_j / (exp(sink) + sum_j exp(s_ij)) over the keys that i may see; zero where there are none."""
    q, k, v = q.double(), k.double(), v.double()
    B, heads, T, _ = q.shape
    S = k.shape[2]
    keep = visible.mask(T, S).expand(B, heads, T, S)
    if mask is not None:
        keep = keep & mask[..., -S:].expand(B, heads, T, S)
    out = []
    for head in range(heads):
        group = head // (heads // k.shape[1])
        scores = q[:, head] @ k[:, group].mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if bias is not None:
            scores = scores + bias.double().expand(B, heads, T, S)[:, head]
        weights = scores.exp() * keep[:, head]
        total = weights.sum(-1, keepdim=True)
        if sinks is not None:
            total = total + sinks[head].double().exp()
        out.append(weights @ v[:, group] / total.clamp_min(1e-300))
    return torch.stack(out, dim=1)


def tensors(T, S, kv_heads, dtype=torch.float64, v_dim=V_DIM):
    torch.manual_seed(0)
    shapes = (2, HEADS, T, K_DIM), (2, kv_heads, S, K_DIM), (2, kv_heads, S, v_dim)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def options(T, S, *, mask, bias, softcap, sinks):
    torch.manual_seed(1)
    chosen = {}
    if mask:
        chosen["mask"] = torch.rand(2, 1, T, S) < 0.6
        chosen["mask"][0, :, 0] = False  # a query that sees nothing
    if bias:
        chosen["bias"] = torch.randn(HEADS, T, S, dtype=torch.float64)
    if softcap:
        chosen["softcap"] = 2.0
    if sinks:
        chosen["sinks"] = torch.randn(HEADS, dtype=torch.float64)
    return chosen


RULES = [Visible(causal=False), Visible(causal=True), Visible(causal=True, window=2), Visible(causal=False, window=3)]
FLAGS = list(product([False, True], repeat=4))


@pytest.mark.parametrize("flags", FLAGS, ids=lambda f: "".join(n for n, on in zip("mbcs", f, strict=True) if on) or "-")
@pytest.mark.parametrize("visible", RULES, ids=str)
@pytest.mark.parametrize(("T", "S", "kv_heads"), [(5, 5, 4), (5, 5, 2), (1, 5, 1), (3, 5, 2), (5, 3, 4)])
def test_attend_is_its_formula_with_finite_gradients(flags, visible, T, S, kv_heads):
    q, k, v = tensors(T, S, kv_heads)
    chosen = options(T, S, **dict(zip(("mask", "bias", "softcap", "sinks"), flags, strict=True)))
    y = attend(q, k, v, visible, **chosen)
    torch.testing.assert_close(y, reference(q, k, v, visible, **chosen), rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(y)
    ours = torch.autograd.grad((y * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((reference(q, k, v, visible, **chosen) * weight).sum(), (q, k, v))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


MANY = 40  # from 32 queries on, a sink is one more key


@pytest.mark.parametrize("masked", [False, True], ids=["", "mask"])
@pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("visible", RULES, ids=str)
@pytest.mark.parametrize(("S", "kv_heads", "v_dim"), [(MANY, 4, V_DIM), (MANY, 2, K_DIM), (MANY + 9, 1, K_DIM + 11)])
def test_sinks_of_many_queries(masked, biased, visible, S, kv_heads, v_dim):
    q, k, v = tensors(MANY, S, kv_heads, v_dim=v_dim)
    chosen = options(MANY, S, mask=masked, bias=biased, softcap=False, sinks=True)
    inputs = (q, k, v, chosen["sinks"].requires_grad_())
    ours, theirs = attend(q, k, v, visible, **chosen), reference(q, k, v, visible, **chosen)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    weight = torch.randn_like(ours)
    gradients = (torch.autograd.grad((y * weight).sum(), inputs) for y in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v, visible, **chosen), theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("T", [1, MANY])
def test_a_sink_is_as_precise_as_float32_and_may_be_off(dtype, T):
    """5.0123 is 5.0 in bfloat16: the values' share, 1 / 4.8, would be off by 1 %."""
    q, k = torch.zeros(1, 2, T, K_DIM, dtype=dtype), torch.zeros(1, 1, MANY, K_DIM, dtype=dtype)
    v = torch.ones(1, 1, MANY, 1, dtype=dtype)
    sinks = torch.tensor([5.0123, float("-inf")])
    y = attend(q, k, v, Visible(causal=False), sinks=sinks)
    expected = torch.stack([MANY / (MANY + sinks[0].exp()), torch.tensor(1.0)])
    torch.testing.assert_close(y[0, :, -1, 0], expected.to(dtype), rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("v_dim", [K_DIM, V_DIM])
@pytest.mark.parametrize("flags", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_attend_in_narrow_dtypes(dtype, v_dim, flags):
    q, k, v = tensors(5, 5, 2, dtype, v_dim)
    chosen = options(5, 5, **dict(zip(("mask", "bias", "softcap", "sinks"), flags, strict=True)))
    y = attend(q, k, v, Visible(causal=True), **chosen)
    assert y.dtype == dtype
    expected = reference(q, k, v, Visible(causal=True), **chosen)
    torch.testing.assert_close(y.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("v_dim", [V_DIM, K_DIM + 3])
@pytest.mark.parametrize("visible", RULES, ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("T", "S", "kv_heads"), [(5, 5, 4), (5, 5, 2), (1, 5, 1), (3, 5, 1)])
@torch.no_grad()
def test_widths_that_differ_without_gradients(v_dim, visible, masked, T, S, kv_heads):
    """Without gradients the CPU's kernel for equal widths is used."""
    for dtype in (torch.float64, torch.bfloat16):
        q, k, v = tensors(T, S, kv_heads, dtype, v_dim)
        chosen = options(T, S, mask=masked, bias=False, softcap=False, sinks=False)
        y = attend(q, k, v, visible, **chosen)
        assert y.shape == (2, HEADS, T, v_dim)
        expected = reference(q, k, v, visible, **chosen)
        torch.testing.assert_close(y.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("v_dim", [V_DIM, K_DIM + 3])
def test_widths_that_differ_with_gradients_over_many_keys(v_dim):
    q, k, v = (x.requires_grad_() for x in tensors(3, 520, 2, v_dim=v_dim))
    visible = Visible(causal=True)
    ours, theirs = attend(q, k, v, visible), reference(q, k, v, visible)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn_like(ours)
    gradients = (torch.autograd.grad((y * weight).sum(), (q, k, v)) for y in (ours, theirs))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("option", [{}, {"softcap": 3.0}, {"sinks": torch.zeros(4)}], ids=["sdpa", "cap", "sinks"])
@pytest.mark.parametrize("visible", RULES, ids=str)
def test_no_queries_give_no_rows(option, visible):
    q, k, v = tensors(0, 5, 2)
    y = attend(q, k, v, visible, mask=torch.ones(0, 5, dtype=torch.bool), **option)
    assert y.shape == (2, HEADS, 0, V_DIM)
    assert attend(q, k[:, :, :0], v[:, :, :0], visible, **option).shape == y.shape


@pytest.mark.parametrize(
    "option", [{}, {"softcap": 50.0}, {"sinks": torch.full((1,), -1e4)}], ids=["sdpa", "cap", "sinks"]
)
def test_a_fully_masked_row_is_zero_with_finite_gradients(option):
    """pytorch/pytorch#103749: -inf and softmax give nan there, a finite fill the mean of all values."""
    q, k, v = (torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    y = attend(q, k, v, Visible(causal=False), mask=mask, **option)
    y.sum().backward()
    torch.testing.assert_close(y[0, 0, 0], v[0, 0, 0])
    torch.testing.assert_close(y[0, 0, 1], torch.zeros(4))
    assert all(x.grad.isfinite().all() for x in (q, k, v))


def test_causal_is_aligned_bottom_right():
    """pytorch/pytorch#108108: SDPA's is_causal is aligned top-left, and a decode step sees only the first key."""
    values = torch.arange(5.0).reshape(1, 1, 5, 1)
    keys = torch.zeros(1, 1, 5, 1)
    for T, expected in ((1, [2.0]), (2, [1.5, 2.0])):
        y = attend(torch.zeros(1, 1, T, 1), keys, values, Visible(causal=True))
        torch.testing.assert_close(y.flatten(), torch.tensor(expected))


def test_true_in_a_mask_may_attend():
    """rasbt/LLMs-from-scratch#1061: with the inverse, earlier positions would see the last token."""
    q, k, v = tensors(5, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    changed = v.detach().clone()
    changed[:, :, 4] += 1.0
    y, z = (attend(q, k, values, Visible(causal=False), mask=mask) for values in (v, changed))
    torch.testing.assert_close(y[:, :, :4], z[:, :, :4], rtol=0, atol=0)
    torch.testing.assert_close(y, attend(q, k, v, Visible(causal=True)))


def test_a_mask_of_numbers_is_refused():
    """A float mask would be added to the scores, or be taken for the inverse."""
    q, k, v = tensors(5, 5, 4)
    with pytest.raises(UsageError, match=r"a mask must be bool, True = may attend, not torch.float32"):
        attend(q, k, v, Visible(causal=True), mask=torch.ones(5, 5))


def test_of_a_longer_mask_the_last_columns_count():
    q, k, v = tensors(1, 3, 4)
    mask = torch.tensor([True, False, False, True, True])
    expected = attend(q, k, v, Visible(causal=True), mask=mask[-3:])
    torch.testing.assert_close(attend(q, k, v, Visible(causal=True), mask=mask), expected)


@pytest.mark.parametrize("shape", [(5,), (1, 1), (3, 1), (2, 1, 1, 5), (4, 3, 5), (2, 1, 3, 1)])
@pytest.mark.parametrize("option", [{}, {"softcap": 50.0}], ids=["sdpa", "written out"])
def test_masks_and_biases_broadcast(shape, option):
    q, k, v = tensors(3, 5, 4)
    torch.manual_seed(2)
    values = torch.randn(shape, dtype=torch.float64)
    for visible in (Visible(causal=True), Visible(causal=False)):
        for chosen in ({"mask": values > 0}, {"bias": values}):
            full = {name: value.expand(2, HEADS, 3, 5) for name, value in chosen.items()}
            expected = reference(q, k, v, visible, **full, **option)
            torch.testing.assert_close(attend(q, k, v, visible, **chosen, **option), expected)


def test_scores_that_only_the_scale_keeps_in_float16():
    q = k = torch.full((1, 1, 2, 64), 40.0, dtype=torch.float16)  # q k = 102400, beyond float16; scaled 12800
    v = torch.ones(1, 1, 2, 4, dtype=torch.float16)
    y = attend(q, k, v, Visible(causal=False), softcap=50.0)
    torch.testing.assert_close(y, v)


@pytest.mark.parametrize("option", [{}, {"softcap": 50.0}], ids=["sdpa", "written out"])
def test_dropout_keeps_the_mean_and_varies_rows(option):
    torch.manual_seed(0)
    q, k = torch.zeros(1, 1, 2000, 4), torch.zeros(1, 1, 16, 4)
    y = attend(q, k, torch.ones(1, 1, 16, 1), Visible(causal=False), dropout=0.25, **option)
    assert abs(y.mean() - 1) < 0.02  # 2000 x 16 weights: standard error 0.0032
    assert y.std() > 0.1


class Calls(TorchFunctionMode):
    """Notes the functions it sees."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("option", [{}, {"softcap": 50.0}])
def test_a_function_mode_sees_one_call(option):
    q, k, v = tensors(3, 3, 2)
    with Calls() as calls:
        attend(q, k, v, Visible(causal=True), **option)
    assert calls.seen == [attend]


@pytest.mark.parametrize("name", ["plain", "mask", "bias", "softcap", "sinks"])
def test_attend_compiles_in_one_graph_over_changing_shapes(name):
    torch._dynamo.reset()
    visible = Visible(causal=True, window=None if name in ("plain", "sinks") else 3)
    compiled = torch.compile(attend, fullgraph=True, backend="eager")
    for T, S in ((4, 4), (6, 6), (1, 7), (1, 8), (2, 9), (40, 40), (41, 50)):
        q, k, v = (x.detach() for x in tensors(T, S, 2))
        chosen = options(T, S, **{flag: flag == name for flag in ("mask", "bias", "softcap", "sinks")})
        torch.testing.assert_close(compiled(q, k, v, visible, **chosen), attend(q, k, v, visible, **chosen))
