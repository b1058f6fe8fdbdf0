"""The gate before two things are timed against each other as equals: what they compute must agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explorer.errors import MeasureError

Forward = Callable[..., Tensor]


@dataclass(frozen=True)
class Agreement:
    """How far two results are apart, as a share of their size, and how far rounding may take them: see `agree`."""

    error: float
    bound: float

    @property
    def ok(self) -> bool:
        return self.error <= self.bound < 1  # nan is not

    @property
    def reason(self) -> str | None:
        """Why nothing may be said about their times; None where they agree."""
        if self.ok:
            return None
        if not math.isfinite(self.error + self.bound):
            return "not compared: results are not finite"
        if self.bound >= 1:
            return f"not compared: a change of one rounding moves the results by {self.bound:.1e}"
        return f"not compared: results differ by {self.error:.1e} (bound {self.bound:.1e})"


def compare(one: Forward, other: Forward, inputs: Sequence[Any], dtype: torch.dtype, length: int) -> Agreement:
    """Whether two functions of these inputs, each called from the same state, agree; for dtype and length see `agree`.

    With gradients where an input requires them, as in training: compiled code is another one with them.
    """
    grad = any(isinstance(given, Tensor) and given.requires_grad for given in inputs)
    with torch.set_grad_enabled(grad):
        ours, theirs, moved = one(*inputs), other(*inputs), other(*map(moved_by_rounding, inputs))
    return agree(ours.detach(), theirs.detach(), moved.detach(), dtype, length)


def agree(one: Tensor, other: Tensor, moved: Tensor, dtype: torch.dtype, length: int) -> Agreement:
    """Whether two results (..., dim) of one function in this dtype agree, compared in float64.

    moved: as `other`, of inputs each number of which was moved by one rounding. That moves the result as far as all
    rounding inside takes it, be the function steep or a choice among near ties (an expert): blocks in float32, bfloat16
    and float16 were 0.2 to 1.1 times as far from themselves in float64.
    error: the difference of a token's two vectors against the size of the vector, or of the typical one where that is
    larger (2-norms), the largest of all tokens; and the same of all tokens together.
    bound: 4 times what `moved` differs by, and eps + sqrt(length) eps_sum: a last rounding to the dtype, and the
    roundings of sums of `length` terms, kept in float32 at least, which wander like sqrt(length).
    Of the two pairs the one is told that comes nearest to its bound, among those with a bound below 1.
    """
    if one.shape != other.shape:
        raise MeasureError(f"not compared: the results have shapes {tuple(one.shape)} and {tuple(other.shape)}")
    pairs = zip(_errors(one, other), _errors(moved, other), strict=True)
    checks = [Agreement(error, bound(moves, dtype, length)) for error, moves in pairs]
    return worst([check for check in checks if check.bound < 1] or checks[-1:])


def bound(moves: float, dtype: torch.dtype, length: int) -> float:
    """How far rounding may take a result that moves so far when its inputs move by a rounding: see `agree`."""
    return _eps(dtype) + math.sqrt(length) * _eps(torch.promote_types(dtype, torch.float32)) + 4 * moves


def worst(checks: Iterable[Agreement]) -> Agreement:
    """The one that comes nearest to its bound, or is farthest beyond."""

    def rank(check: Agreement) -> tuple[bool, float]:
        share = check.error / check.bound
        return not check.ok, share if math.isfinite(share) else math.inf

    return max(checks, key=rank)


def reduction(module: nn.Module, inputs: Sequence[Any]) -> int:
    """The longest sum in a block: over the columns of a weight or over the tokens of an input (B, T, ...).

    In training also over the tokens of the whole batch, in the gradient of a weight.
    """
    columns = [weight.shape[-1] for weight in module.parameters() if weight.ndim]
    several = [given for given in inputs if isinstance(given, Tensor) and given.ndim > 1]
    tokens = [given.shape[1] * (given.shape[0] if given.requires_grad else 1) for given in several]
    return max(*columns, *tokens, 1, 1)


def _errors(one: Tensor, other: Tensor) -> tuple[float, float]:
    """Of the token that is farthest off, and of all."""
    one, other = one.double(), other.double()
    differences, sizes = (one - other).norm(dim=-1), other.norm(dim=-1)
    typical, whole = sizes.square().mean().sqrt(), differences.square().mean().sqrt()
    if not typical:
        return (float(whole > 0),) * 2
    return float((differences / sizes.clamp_min(typical)).max()), float(whole / typical)


def _eps(dtype: torch.dtype) -> float:
    """From 1 to the next number, as products see it: float32 may be rounded to TF32 or bfloat16 first."""
    if dtype == torch.float32:
        return {"high": 2.0**-10, "medium": 2.0**-7}.get(torch.get_float32_matmul_precision(), 2.0**-23)
    return torch.finfo(dtype).eps


@torch.no_grad()
def moved_by_rounding(given: Any) -> Any:
    """An input whose every number is a rounding larger or smaller; anything but floating-point tensors as it is."""
    if not (isinstance(given, Tensor) and given.is_floating_point()):
        return given
    drawn = torch.Generator(given.device).manual_seed(0)
    signs = torch.randint(2, given.shape, generator=drawn, device=given.device) * 2 - 1
    moved = given * (1 + torch.finfo(given.dtype).eps * signs).to(given.dtype)
    return moved.requires_grad_(given.requires_grad)
