"""Which part a row belongs to, forward and backward: around checkpoints, shared tensors and nested calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from explorer.cost.ledger.trace import Trace


def meta(*shape: int, grad: bool = False) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=grad)


def kernels(trace: Trace) -> list[tuple[str, str, bool]]:
    return [(row.op.removeprefix("aten::"), row.part, row.backward) for row in trace.rows if row.kernels]


def test_the_backward_of_a_node_is_of_the_part_that_made_it() -> None:
    x = meta(4, grad=True)
    with Trace() as trace:
        y = x.exp()
        with trace.part("first"):
            y = y.sin()
            with trace.part("inner"):
                y = y.tanh()
            y = y.relu()
        with trace.part("second"):
            y = y.sigmoid()
        y.backward(torch.empty_like(y))
    assert kernels(trace) == [
        ("exp", "", False), ("sin", "first", False), ("tanh", "inner", False), ("relu", "first", False),
        ("sigmoid", "second", False),
        ("sigmoid_backward", "second", True), ("threshold_backward", "first", True), ("tanh_backward", "inner", True),
        ("cos", "first", True), ("mul", "first", True), ("mul", "", True),
    ]  # fmt: skip
    assert set(trace.counts_by_part()) == {
        (part, b) for part in ("", "first", "inner", "second") for b in (False, True)
    }


def test_gradients_that_meet_are_added_by_the_part_of_the_later_one() -> None:
    """Right after the node that gave it; behind a view that was made between parts, between them."""
    x, w = meta(3, 4, grad=True), meta(4, 4, grad=True)
    with Trace() as trace:
        with trace.part("in"):
            h = x.exp()
        aliases = [h.view_as(h) for _ in range(2)]
        with trace.part("left"):
            left = aliases[0] @ w
        with trace.part("right"):
            right = aliases[1] @ w
        with trace.part("out"):
            y = left * right
        torch.autograd.grad(y, [x, w], torch.empty_like(y))
    backward = [(op, part) for op, part, is_backward in kernels(trace) if is_backward]
    assert backward == [
        ("mul", "out"), ("mul", "out"),
        ("mm", "right"), ("mm", "right"), ("mm", "left"), ("mm", "left"), ("add", "left"), ("add", ""),
        ("mul", "in"),
    ]  # fmt: skip
    between = trace.counts_by_part()["", True]
    assert (between.cheap_ops, between.kernels) == (12, 1)


def test_gradients_that_are_put_away_are_between_parts() -> None:
    """`.grad` that is there already gets a sum."""
    w = meta(4, grad=True)
    w.grad = meta(4)
    with Trace() as trace:
        with trace.part("part"):
            y = w * 2
        y.backward(meta(4))
    assert kernels(trace) == [("mul", "part", False), ("mul", "part", True), ("add_", "", True)]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_what_a_checkpoint_runs_again_is_of_its_part(reentrant: bool, inside: bool) -> None:
    """Whether the label is given inside the checkpoint or around it; the backward of what is run again too."""
    x = meta(4, grad=True)
    with Trace() as trace:

        def layer(x: Tensor) -> Tensor:
            if not inside:
                return x.sin().tanh().relu()
            with trace.part("layer"):
                return x.sin().tanh().relu()

        with trace.part("before"):
            y = x.exp()
        with trace.part("" if inside else "layer"):
            y = checkpoint(layer, y, use_reentrant=reentrant)
        with trace.part("after"):
            y = y.sigmoid()
        y.backward(torch.empty_like(y))
    names = {"sin": "layer", "tanh": "layer", "relu": "layer", "threshold_backward": "layer", "tanh_backward": "layer"}
    names |= {"cos": "layer", "exp": "before", "sigmoid": "after", "sigmoid_backward": "after"}
    for op, part, _ in kernels(trace):
        if op != "mul":
            assert (op, part) == (op, names[op])
    again = [op for op, _, backward in kernels(trace) if backward and op in ("sin", "tanh", "relu")]
    assert again[:2] == ["sin", "tanh"]
    assert [part for op, part, _ in kernels(trace) if op == "mul"] == ["layer", "before"]


class Nested(torch.autograd.Function):
    """exp, whose backward runs a graph of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = x.tanh()
        return torch.autograd.grad(y, x, grad)[0]


@pytest.mark.parametrize("run", [lambda y: y.backward(meta(4)), lambda y: torch.autograd.backward([y], [meta(4)])])
def test_a_graph_inside_a_node_is_of_the_nodes_part(run: Callable[[Tensor], None]) -> None:
    x = meta(4, grad=True)
    with Trace() as trace:
        with trace.part("part"):
            y = Nested.apply(x)
        with trace.part("other"):
            y = y.sin()
        run(y)
    assert kernels(trace) == [
        ("exp", "part", False), ("sin", "other", False), ("cos", "other", True), ("mul", "other", True),
        ("tanh", "part", True), ("tanh_backward", "part", True),
    ]  # fmt: skip


def test_a_part_ends_with_an_error() -> None:
    with Trace() as trace:
        with pytest.raises(RuntimeError), trace.part("part"):
            meta(3) @ meta(4)
        meta(3) * 2
    assert kernels(trace) == [("mul", "", False)]
