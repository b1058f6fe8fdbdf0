"""A loaded blueprint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from explorer.blueprint.axes import Axis, Baseline, plain_axes
from explorer.blueprint.combinations import DEFAULT_LIMIT, Combinations, combine
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.reading import Reader
from explorer.blueprint.resolve import resolve
from explorer.blueprint.resolved import resolved
from explorer.blueprint.skips import Rule
from explorer.blueprint.state import State
from explorer.blueprint.workload import Workload
from explorer.registry.registry import Registry


@dataclass(frozen=True)
class Blueprint:
    """What a file and the options beside it say: the model, the workloads, and what is explored."""

    name: str
    path: str
    registry: Registry = field(repr=False)
    state: State = field(repr=False)
    workloads: tuple[Workload, ...] = (Workload(),)
    axes: tuple[Axis, ...] = ()
    skips: tuple[Rule, ...] = ()
    baseline: Baseline = field(default_factory=Baseline)
    encoding: str = "utf-8"

    def plan(self) -> ModelPlan:
        """The model as written, axes aside.

        Raises: BlueprintError with everything that stands against it.
        """
        reader = Reader(self.registry)
        plan = resolve(self.state, reader)
        reader.raise_problems()
        assert plan is not None
        return plan

    def combinations(self, limit: int = DEFAULT_LIMIT) -> Combinations:
        """The rows of the study; one row without axes.

        Raises: UsageError above the limit, BlueprintError where no row is left.
        """
        return combine(self.state, self.axes, self.skips, self.baseline, Reader(self.registry), limit)

    def resolved(self) -> dict[str, Any]:
        """Every field with its value in force, as plain data that loads again."""
        return {"name": self.name, **resolved(self.state), "workloads": [w.written() for w in self.workloads]}

    @property
    def digest(self) -> str:
        """sha256 of the resolved blueprint and its axes."""
        document = {"blueprint": self.resolved(), "axes": plain_axes(self.axes)}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
