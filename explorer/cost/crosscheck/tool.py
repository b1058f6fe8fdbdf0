"""One number that a tool prints, held against ours, and the reasons that make up the difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Quantity = Literal["matmul_flops", "matmul_flops_exact", "params"]


@dataclass(frozen=True)
class Reason:
    """Why a tool prints another number. amount: what that adds to its number, in FLOPs or parameters, as predicted."""

    name: str
    why: str
    amount: int

    def __str__(self) -> str:
        return f"{self.name}: {self.amount:+,}"


@dataclass(frozen=True)
class Tool:
    """What one tool prints for one block and pass.

    printed: in its own `unit`, of which one is `factor` FLOPs or parameters; None: it says nothing, `note` says why.
    ours: what `quantity` is here. failed: whether it could not be run.
    """

    name: str
    version: str
    quantity: Quantity
    unit: str
    factor: int
    printed: int | None
    ours: int | None
    reasons: tuple[Reason, ...] = ()
    note: str | None = None
    failed: bool = False

    @property
    def converted(self) -> int | None:
        """What it printed in FLOPs, 1 multiply-add = 2, or in parameters."""
        return None if self.printed is None else self.printed * self.factor

    @property
    def expected(self) -> int | None:
        """`converted` as ours and the reasons predict it."""
        return None if self.ours is None else self.ours + sum(reason.amount for reason in self.reasons)

    @property
    def gap(self) -> int | None:
        """How much more it says than we do."""
        return None if self.converted is None or self.ours is None else self.converted - self.ours

    @property
    def explained(self) -> bool | None:
        """Whether what it prints, if anything, follows from ours and the reasons, to the last digit.

        None: it was not checked, since the tool failed or ours is not known.
        """
        if self.failed or self.ours is None:
            return None
        return self.printed is None or self.converted == self.expected

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of a result."""
        return {
            "tool": self.name,
            "version": self.version,
            "quantity": self.quantity,
            "unit": self.unit,
            "factor": self.factor,
            "printed": self.printed,
            "converted": self.converted,
            "ours": self.ours,
            "expected": self.expected,
            "gap": self.gap,
            "explained": self.explained,
            "reasons": [asdict(reason) for reason in self.reasons],
            "note": self.note,
        }


def summed(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """One reason of each name, in the order of their first appearance; what adds nothing is left out."""
    found: dict[str, Reason] = {}
    for reason in reasons:
        before = found.get(reason.name)
        found[reason.name] = Reason(reason.name, reason.why, reason.amount + (before.amount if before else 0))
    return tuple(reason for reason in found.values() if reason.amount)
