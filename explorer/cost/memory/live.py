"""How much memory one call needs while it runs, as torch's eager mode takes and frees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from explorer.cost.memory.saved import leaves
from explorer.cost.parts.failures import foreign
from explorer.cost.parts.storages import Storages
from explorer.cost.parts.trees import Like, put_together, take_apart, tensors_in


def working_set(call: Callable[[Any], Any], inputs: Any, *, grad: bool = False) -> int:
    """The most bytes alive at once that `call(inputs)` made, its result included.

    What was there before does not count (inputs, parameters, buffers), nor what stays behind in a cache; an old state
    beside the one that replaces it does. grad: forward and backward, and only what comes on top of all that is saved
    for backward. Then the gradients of the outputs and of the inputs count, those of parameters do not.

    inputs: a tree of tensors, real ones or, inside `fake_cpu`, fake ones. Scratch memory inside a kernel is not seen.

    Raises: whatever the call raises, CannotRun where its backward fails.
    """
    form, tensors = take_apart(leaves(inputs))

    def run() -> Any:
        # The tree goes with the call, which may put something into a mapping that it was given.
        return call(put_together(form, tensors))

    return _both_ways(run, tensors) if grad else _forward(run)


@torch.no_grad()
def _forward(run: Callable[[], Any]) -> int:
    with Storages() as storages:
        run()  # what it returns is freed here
    alive = storages.alive()
    return max(alive) - alive[-1]


@torch.enable_grad()
def _both_ways(run: Callable[[], Any], inputs: list[Tensor]) -> int:
    came = set(map(id, inputs))
    with Storages() as storages:
        end = _end(run())  # what it returns is freed here, unless it is saved
        saved = storages.alive()[-1]
        apart: set[int | None] = set()
        if end is not None:
            variables = _variables(end)
            with _no_gradients_yet(variables):
                with foreign():
                    end.backward(torch.empty_like(end))
                of_weights = [variable.grad for variable in variables if id(variable) not in came]
                apart = {storages.number(grad) for grad in of_weights if grad is not None}
    return max(storages.alive(apart)) - saved


@contextmanager
def _no_gradients_yet(variables: Sequence[Tensor]) -> Iterator[None]:
    """Inside, backward finds no `.grad`; afterwards the old ones are there again."""
    before = [variable.grad for variable in variables]
    try:
        for variable in variables:
            variable.grad = None
        yield
    finally:
        for variable, grad in zip(variables, before, strict=True):
            variable.grad = grad


def _end(out: Any) -> Tensor | None:
    """An empty tensor whose backward sends a gradient to each tensor of `out` that takes one; None if none does."""
    outs = [tensor for tensor in tensors_in(out) if tensor.grad_fn is not None]
    return _Arrive.apply(*outs) if outs else None


class _Arrive(torch.autograd.Function):
    """Gradients from nowhere. They belong to autograd alone, which frees each as soon as it has been used."""

    @staticmethod
    def forward(ctx: Any, *outs: Tensor) -> Tensor:
        ctx.likes = [Like.of(out) for out in outs]
        return outs[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(like.make(grad.device).detach() for like in ctx.likes)


def _variables(end: Tensor) -> list[Tensor]:
    """The leaves that a backward from here reaches: inputs and parameters."""
    seen: set[Any] = set()
    found: list[Tensor] = []
    todo: list[Any] = [end.grad_fn]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            found.append(node.variable)
        todo += [following for following, _ in node.next_functions if following is not None]
    return found
