"""How far results agree: rounding passes, whatever else does not, and near ties do not count."""

import math

import pytest
import torch
from torch import nn

from explorer import build
from explorer.errors import MeasureError
from explorer.latency.parity import Agreement, agree, compare, reduction
from explorer.latency.twins import share_weights

BASE = {"dim": 32, "heads": 4, "attention": "mha"}
NAIVE = {**BASE, "attention": "mha_naive"}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def block(fields, dtype=torch.float32):
    return build(fields, "block", device="cpu", dtype=dtype)


def drawn(*shape, dtype=torch.float32, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def compared(one, other, inputs, dtype):
    share_weights(one.eval(), other.eval())
    return compare(one, other, inputs, dtype, reduction(other, inputs))


AROUND = {
    "pre": {},
    "post": {"placement": "post"},
    "streams": {"residual": "mhc"},
    "cross": {"encoder": {}, "cross_attention": "mha_naive"},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fields", AROUND.values(), ids=AROUND)
def test_naive_and_fused_attention_pass(fields, dtype):
    others = {"cross_attention": "mha"} if "cross_attention" in fields else {}
    name = "decoder.block" if others else "block"
    one, other = (
        build(whole, "block", name, device="cpu", dtype=dtype)
        for whole in ({**NAIVE, **fields}, {**BASE, **fields, **others})
    )
    inputs = [drawn(2, 9, 32, dtype=dtype), *([drawn(2, 7, 32, dtype=dtype, seed=2)] if others else [])]
    found = compared(one, other, inputs, dtype)
    assert found.ok
    assert found.reason is None
    assert found.bound < 0.1


WRONG = {
    "mask": {"causal": False},
    "one key too few": {"window": 8},
    "scale": {"attention": {"mha": {"scale": 0.34}}},  # 8^-0.5 is 0.354
    "position": {"position": {"rope": {"base": 100.0}}},
}


@pytest.mark.parametrize("dtype", DTYPES[:2])  # a narrower one hides some of it: gates look here first
@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_what_computes_something_else_does_not(fields, dtype):
    found = compared(block(NAIVE, dtype), block({**BASE, **fields}, dtype), [drawn(2, 9, 32, dtype=dtype)], dtype)
    assert not found.ok
    assert found.reason == f"not compared: results differ by {found.error:.1e} (bound {found.bound:.1e})"


BLOCKS = {
    "gated, grouped": {"attention": {"gqa": {"kv_heads": 2, "gate": True, "qk_norm": "rmsnorm"}}},
    "recurrent": {"attention": "gated_deltanet"},
    "without residual": {"residual": "none", "placement": "none", "norm": "none"},
    "experts": {"feedforward": {"moe": {"experts": 16, "top_k": 2, "hidden": 32}}},
}


@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("fields", BLOCKS.values(), ids=BLOCKS)
def test_the_roundings_of_a_block_pass(fields, dtype):
    """Its own result in float64 is as far off as that of another implementation may be; some experts are near ties."""
    module = block({**BASE, **fields}, dtype).eval()
    exact = block({**BASE, **fields}, torch.float64).eval()
    exact.load_state_dict(module.state_dict())
    x = drawn(4, 64, 32, dtype=dtype)
    found = compare(lambda x: exact(x.double()), module, [x], dtype, reduction(module, [x]))
    assert found.ok
    assert found.error > 0


def rows(*sizes):
    """(1, tokens, 2) of these lengths."""
    return torch.tensor([[[size, 0.0] for size in sizes]])


@pytest.mark.parametrize(
    ("one", "other", "error"),
    [
        (rows(1.0, 1.1), rows(1.0, 1.0), 0.1),  # one token, against its own size
        (rows(1.0, 5.5), rows(1.0, 5.0), 0.1),
        (rows(1.0, 0.1), rows(1.0, 0.0), 0.1 * 2**0.5),  # a small one, against the typical size
        (rows(0.0, 0.0), rows(0.0, 0.0), 0.0),
        (rows(0.0, 0.1), rows(0.0, 0.0), 1.0),
    ],
)
def test_the_error_is_that_of_the_token_that_is_farthest_off(one, other, error):
    found = agree(one, other, other, torch.float32, length=4)
    assert found.error == pytest.approx(error, rel=1e-6)
    assert found.bound == pytest.approx(3 * 2.0**-23)


def test_what_a_rounding_moves_may_differ():
    one, other, moved = rows(1.0, 1.003), rows(1.0, 1.0), rows(1.0, 1.001)
    assert not agree(one, other, other, torch.float32, length=1).ok
    assert agree(one, other, moved, torch.float32, length=1).ok


def test_where_single_tokens_jump_all_of_them_decide():
    """A token in a thousand goes to another expert: that one may be anything, the whole may not."""
    other, moved, one = (torch.ones(1, 1000, 2) for _ in range(3))
    moved[0, 0], one[0, 500] = -1.0, -1.0
    found = agree(one, other, moved, torch.bfloat16, length=1)
    assert found.ok
    assert found.error == pytest.approx(2 / 1000**0.5)
    one[0, :40] = -1.0
    assert not agree(one, other, moved, torch.bfloat16, length=1).ok


@pytest.mark.parametrize(
    ("agreement", "reason"),
    [
        (Agreement(1e-3, 2e-3), None),
        (Agreement(3e-3, 2e-3), "not compared: results differ by 3.0e-03 (bound 2.0e-03)"),
        (Agreement(math.nan, 2e-3), "not compared: results are not finite"),
        (Agreement(0.5, 1.5), "not compared: a change of one rounding moves the results by 1.5e+00"),
    ],
)
def test_reasons(agreement, reason):
    assert agreement.reason == reason
    assert agreement.ok is (reason is None)


def test_results_that_are_not_finite_never_agree():
    broken = rows(1.0, math.nan)
    assert not agree(broken, broken, broken, torch.float32, length=1).ok


def test_results_of_other_shapes_are_refused():
    with pytest.raises(MeasureError, match=r"results have shapes \(1, 2, 2\) and \(1, 3, 2\)"):
        agree(rows(1.0, 1.0), rows(1.0, 1.0, 1.0), rows(1.0, 1.0), torch.float32, length=1)


def test_products_that_round_further_may_differ_further():
    one, other = rows(1.0, 1.0005), rows(1.0, 1.0)
    assert not agree(one, other, other, torch.float32, length=1).ok
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert agree(one, other, other, torch.float32, length=1).ok
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("train", [False, True])
def test_gradients_are_on_where_an_input_wants_them(train):
    """Compiled code with gradients is other code than without."""
    x, seen = drawn(2, 3, 4).requires_grad_(train), []

    def spy(given):
        seen.append((torch.is_grad_enabled(), given.requires_grad))
        return given * 2

    assert compare(spy, spy, [x], torch.float32, 1).ok
    assert seen == [(train, train)] * 3


def test_only_numbers_are_moved():
    table, ids, seen = nn.Embedding(5, 4), torch.tensor([[0, 4, 2]]), []

    def look(given, mask):
        seen.append((given, mask))
        return table(given)

    assert compare(look, look, [ids, None], torch.float32, 1).error == 0
    assert all(given is ids and mask is None for given, mask in seen)


def test_the_longest_sum_is_over_columns_or_tokens():
    module = nn.Sequential(nn.Linear(3, 20), nn.Linear(20, 7))
    assert reduction(module, [torch.ones(1, 5, 3), None]) == 20
    assert reduction(module, [torch.ones(1, 50, 3)]) == 50
    assert reduction(nn.Identity(), []) == 1
