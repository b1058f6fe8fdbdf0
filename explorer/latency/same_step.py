"""Whether two ways of running one step agree: in what they return, in training in its gradients too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explorer.latency.parity import Agreement, agree, bound, compare, moved_by_rounding, reduction, worst
from explorer.latency.runner import Forward, Step


@dataclass(frozen=True)
class Run:
    """A step, and what runs it in the place of its module. moves: see `twins.equal_moves`."""

    step: Step
    forward: Forward
    moves: Sequence[Tensor] | None = None

    @property
    def module(self) -> nn.Module:
        assert self.step.module is not None, "a bare function runs in one way only"
        return self.step.module

    @property
    def weights(self) -> list[nn.Parameter]:
        return [weight for weight in self.module.parameters() if weight.requires_grad]

    def result(self, *inputs: Any) -> Tensor:
        """What it makes of inputs; the step begins where it did."""
        return self.step.result(self.forward, *inputs)

    def trained(self, *inputs: Any) -> _Trained:
        """Result and gradients, from an output gradient that is the same for all."""
        given = [one for one in inputs if isinstance(one, Tensor) and one.requires_grad]
        leaves = [*given, *self.weights]
        with torch.enable_grad():
            y = self.result(*inputs)
            slopes = _slopes(y, leaves)
        return _Trained(y.detach(), slopes[: len(given)], slopes[len(given) :])


def compare_runs(one: Run, other: Run) -> Agreement:
    """Whether two runs agree on the inputs of the second: see `parity.agree`.

    In training also the gradients of the inputs, token by token, and those of all parameters as one vector: some are
    nothing but rounding, such as that of a bias of keys. Where the two have parameters of their own, the slopes along
    their `moves` stand for these.
    """
    inputs, length = other.step.inputs, reduction(other.module, other.step.inputs)
    dtype = next((weight.dtype for weight in other.module.parameters()), torch.get_default_dtype())
    if other.step.phase != "train":
        return compare(one.result, other.result, inputs, dtype, length)
    ours, theirs = one.trained(*inputs), other.trained(*inputs)
    moved = other.trained(*map(moved_by_rounding, inputs))
    tensors = zip((ours.y, *ours.inputs), (theirs.y, *theirs.inputs), (moved.y, *moved.inputs), strict=True)
    limit = bound(_apart(moved.weights, theirs.weights), dtype, length)
    if one.moves is None or other.moves is None:
        error = _apart(ours.weights, theirs.weights)
    else:
        error = _apart_along(ours.weights, one.moves, theirs.weights, other.moves)
    return worst([*(agree(*three, dtype, length) for three in tensors), Agreement(error, limit)])


@dataclass(frozen=True)
class _Trained:
    """The result of a forward, and the gradients of what went into it and of the weights."""

    y: Tensor
    inputs: Sequence[Tensor]
    weights: Sequence[Tensor]


def _slopes(y: Tensor, leaves: Sequence[Tensor]) -> Sequence[Tensor]:
    """Gradients of leaves, zero where nothing depends on them."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    drawn = torch.Generator(y.device).manual_seed(0)
    gradient = torch.randn(y.shape, generator=drawn, device=y.device).to(y.dtype)
    return torch.autograd.grad(y, leaves, gradient, materialize_grads=True)


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The difference of two vectors in several tensors, as a share of the second (2-norms)."""
    return _share(_norm(a.double() - b.double() for a, b in zip(one, other, strict=True)), _norm(other))


def _apart_along(
    one: Sequence[Tensor], moves: Sequence[Tensor], other: Sequence[Tensor], other_moves: Sequence[Tensor]
) -> float:
    """The difference of two slopes as a share of the size that such a slope has: its terms have random signs."""
    ours, theirs = (_products(*pair) for pair in ((one, moves), (other, other_moves)))
    return _share(abs(_total(ours) - _total(theirs)), _norm(theirs))


def _products(gradients: Sequence[Tensor], moves: Sequence[Tensor]) -> list[Tensor]:
    return [gradient.double() * move for gradient, move in zip(gradients, moves, strict=True)]


def _total(tensors: Iterable[Tensor]) -> float:
    return math.fsum(float(tensor.sum()) for tensor in tensors)


def _norm(tensors: Iterable[Tensor]) -> float:
    return math.hypot(*(float(tensor.double().norm()) for tensor in tensors))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float(part > 0)
