"""What a check expects, said so that a failure reads as a sentence."""

from __future__ import annotations

from typing import NoReturn
from unittest import SkipTest

import torch
from torch import Tensor


class ContractFailure(AssertionError):
    """A component breaks the plugin contract: which one, of which distribution, what was expected, what came out."""


class Unmet(Exception):
    """One expectation that does not hold; a case turns it into a ContractFailure that names the component."""

    def __init__(self, expected: str, came: str) -> None:
        self.expected, self.came = expected, came
        super().__init__(f"expected {expected}\n  came out: {came}")


def expect(holds: bool, expected: str, came: object) -> None:
    """Raises: Unmet, "expected ...; came out: ...", unless it holds."""
    if not holds:
        raise Unmet(expected, str(came))


def expect_close(
    came: Tensor, wanted: Tensor, expected: str, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Raises: Unmet unless shape and dtype are the same, and all numbers within the tolerance of the dtype."""
    try:
        torch.testing.assert_close(came, wanted, rtol=rtol, atol=atol)
    except AssertionError as error:
        raise Unmet(expected, " ".join(str(error).split())) from None


def expect_like(came: object, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> None:
    """Raises: Unmet unless it is a tensor of that shape and dtype with finite values."""
    if not isinstance(came, Tensor):
        raise Unmet(f"{what} to be a tensor", type(came).__name__)
    wanted = f"{what} of shape {shape} in {dtype}"
    expect(tuple(came.shape) == shape and came.dtype == dtype, wanted, f"shape {tuple(came.shape)} in {came.dtype}")
    expect(bool(came.isfinite().all()), f"{what} to be finite", "nan or infinite values")


def not_declared(reason: str) -> NoReturn:
    """Leaves a check out: the component does not declare what it is about. Test runners report it as skipped."""
    raise SkipTest(reason)
