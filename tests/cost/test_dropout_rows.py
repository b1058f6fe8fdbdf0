"""Dropout is one kernel each way, and draws what torch draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.cost.ledger.trace import Trace

DROPOUTS: list[Callable[[Tensor], Tensor]] = [lambda x: F.dropout(x, 0.3), lambda x: torch.dropout(x, 0.3, True)]


@pytest.mark.parametrize("dropout", DROPOUTS)
def test_dropout_draws_as_torch_does(dropout: Callable[[Tensor], Tensor]) -> None:
    """One kernel that keeps a bool mask; the same seed drops the same elements."""
    x = torch.randn(2, 5, 8, requires_grad=True)
    torch.manual_seed(3)
    plain = dropout(x)
    (wanted,) = torch.autograd.grad(plain.sum(), x)
    torch.manual_seed(3)
    with Trace() as trace:
        found = dropout(x)
        (grad,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(grad, wanted)
    kernels = [row.op for row in trace.rows if row.kind == "random"]
    assert kernels == ["aten::native_dropout", "aten::native_dropout_backward"]


@pytest.mark.parametrize("call", [lambda x: F.dropout(x, 0.0), lambda x: F.dropout(x, 0.3, False)])
def test_a_dropout_that_drops_nothing_is_nothing(call: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 5, 8, device="meta")
    with Trace() as trace:
        call(x)
    assert trace.counts().kernels == 0
