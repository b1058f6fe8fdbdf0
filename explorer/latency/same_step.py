"""Whether two ways of running one step agree: in what they return, in training in its gradients too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from explorer.blueprint.workload import Workload
from explorer.latency.parity import Agreement, agree, bound, compare, moved_by_rounding, reduction, worst
from explorer.latency.runner import Feed, Forward, Step, ready
from explorer.latency.twins import equal_moves, moving_bytes, share_weights

_PIECE = 2**20


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


def twin_runs(
    one: nn.Module, other: nn.Module, workload: Workload, feed: Feed, *, device: str, seed: int = 0
) -> tuple[Run, Run]:
    """The same step on two blocks that shall compute the same, with the same weights, to be compared.

    In eval mode, training too: dropout would draw other numbers in each. For what is raised see `share_weights` and
    `ready`.
    """
    share_weights(one, other)
    moves = equal_moves(one, other) if workload.phase == "train" else (None, None)
    ours, theirs = (
        Run(ready(lambda *where, block=block: block, workload, feed, device=device, seed=seed), block.eval(), move)
        for block, move in zip((one, other), moves, strict=True)
    )
    return ours, theirs


def least_bytes(one: nn.Module, other: nn.Module, phase: str) -> int:
    """Bytes that comparing `twin_runs` takes beside what their tokens make; of blocks without memory (meta) too."""
    weights = sum(tensor.nbytes for block in (one, other) for tensor in (*block.parameters(), *block.buffers()))
    if phase != "train":
        return weights
    kept, moving = moving_bytes(one, other)
    return weights + max(moving, kept + weights)  # two sets of gradients


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
    theirs, moved = other.trained(*inputs), other.trained(*map(moved_by_rounding, inputs))
    limit = bound(_apart(moved.weights, theirs.weights), dtype, length)
    moved = replace(moved, weights=())  # of a block's size: two such sets at a time
    ours = one.trained(*inputs)
    tensors = zip((ours.y, *ours.inputs), (theirs.y, *theirs.inputs), (moved.y, *moved.inputs), strict=True)
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
    differences = (a - b for a, b in zip(_wide(one), _wide(other), strict=True))
    return _share(_norm(differences), _norm(_wide(other)))


def _apart_along(
    one: Sequence[Tensor], moves: Sequence[Tensor], other: Sequence[Tensor], other_moves: Sequence[Tensor]
) -> float:
    """The difference of two slopes as a share of the size that such a slope has: its terms have random signs."""
    (ours, _), (theirs, size) = _along(one, moves), _along(other, other_moves)
    return _share(abs(ours - theirs), size)


def _along(gradients: Sequence[Tensor], moves: Sequence[Tensor]) -> tuple[float, float]:
    """The slope along moves, and the 2-norm of its terms."""
    products = (gradient * move for gradient, move in zip(_wide(gradients), _wide(moves), strict=True))
    terms = [(float(product.sum()), float(product.norm())) for product in products]
    return math.fsum(total for total, _ in terms), math.hypot(*(norm for _, norm in terms))


def _wide(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """A vector in several tensors in float64, in short pieces: as a whole it may be larger than the block."""
    return (piece.double() for tensor in tensors for piece in tensor.flatten().split(_PIECE))


def _norm(pieces: Iterable[Tensor]) -> float:
    return math.hypot(*(float(piece.norm()) for piece in pieces))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else float(part > 0)
