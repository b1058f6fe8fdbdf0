"""One rule of the contract, and that rule for one component."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest import SkipTest

from explorer.errors import ExplorerError
from explorer.testing.expect import ContractFailure, Unmet
from explorer.testing.toy import Toy


@dataclass(frozen=True)
class Check:
    """One rule: `run(toy)` raises Unmet where it does not hold, SkipTest where it is not about such a component.

    slow: takes seconds; run for one component of each kind.
    """

    run: Callable[[Toy], None]
    slow: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__

    @property
    def rule(self) -> str:
        """The rule in words."""
        return (self.run.__doc__ or self.name).splitlines()[0]


@dataclass(frozen=True)
class Case:
    """A rule of the contract for one component."""

    toy: Toy
    rule: Check

    def __str__(self) -> str:
        return f"{self.toy.kind}-{self.toy.component.label}-{self.rule.name}"

    @property
    def slow(self) -> bool:
        """Whether it takes seconds."""
        return self.rule.slow

    def check(self) -> None:
        """Raises: ContractFailure, naming component, distribution, what was expected and what came out."""
        try:
            self.rule.run(self.toy)
        except Unmet as unmet:
            raise ContractFailure(f"{self._title()}: {unmet}") from None
        except (SkipTest, ContractFailure):
            raise
        except Exception as error:
            came = str(error) if isinstance(error, ExplorerError) else f"{type(error).__name__}: {error}"
            raise ContractFailure(f"{self._title()}: expected {self.rule.rule}\n  came out: {came}") from error

    def _title(self) -> str:
        component = self.toy.component
        return f"{self.toy.kind} '{component.name}' of {component.origin} ({component.package}): {self.rule.name}"
