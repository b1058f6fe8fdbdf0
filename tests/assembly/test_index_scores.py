"""Scores that choose keys: their formula pair by pair, and what the ledger counts of them."""

from __future__ import annotations

import pytest
import torch
from torch.overrides import TorchFunctionMode

from explorer import Visible, index_scores
from explorer.cost.ledger.trace import Trace

B, HEADS, WIDTH = 2, 3, 4


def drawn(T, S, dtype=torch.float32):
    torch.manual_seed(0)
    shapes = (B, HEADS, T, WIDTH), (B, 1, S, WIDTH), (B, T, HEADS)
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("visible", [Visible(False), Visible(True), Visible(True, 2)], ids=str)
@pytest.mark.parametrize(("T", "S"), [(4, 4), (1, 5), (3, 5), (0, 3), (2, 0)])
def test_they_are_their_formula(dtype, visible, T, S):
    q, k, weight = drawn(T, S, dtype)
    came = index_scores(q, k, weight, visible)
    assert came.dtype == torch.float32
    keep = visible.mask(T, S)
    expected = torch.full((B, T, S), float("-inf"), dtype=torch.float64)
    for b, t, s in [(b, t, s) for b in range(B) for t in range(T) for s in range(S) if keep[t, s]]:
        products = (q[b, :, t].double() @ k[b, 0, s].double()).clamp(min=0)
        expected[b, t, s] = weight[b, t].double() @ products
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(came.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("visible", [Visible(False), Visible(True), Visible(True, 2)], ids=str)
def test_one_row_with_the_visible_pairs(visible):
    T, S = 3, 5
    inputs = [t.to("meta") for t in drawn(T, S)]
    with Trace() as trace:
        index_scores(*inputs, visible)
    (row,) = trace.rows
    per_pair = B * 2 * HEADS * (WIDTH + 1)
    assert (row.op, row.matmul_flops) == ("index_scores", per_pair * T * S)
    assert row.matmul_flops_exact == per_pair * int(visible.mask(T, S).sum())


def test_a_function_mode_sees_one_call():
    seen, inputs = [], drawn(3, 5)

    class Calls(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Calls():
        index_scores(*inputs, Visible(True))
    assert seen == [index_scores]
