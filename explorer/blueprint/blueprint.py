"""A loaded blueprint."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from explorer.blueprint.axes import Axis
from explorer.blueprint.baseline import Baseline
from explorer.blueprint.combinations import DEFAULT_LIMIT, Combinations, combine
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.reading import Reader
from explorer.blueprint.resolve import resolve
from explorer.blueprint.resolved import resolved
from explorer.blueprint.skips import Rule
from explorer.blueprint.state import State
from explorer.blueprint.tree import plain
from explorer.blueprint.workload import Workload
from explorer.errors import NOWHERE, Where
from explorer.registry.registry import Registry


@dataclass(frozen=True)
class Blueprint:
    """What a file and the options beside it say: the model, the workloads, and what is explored.

    encoding: of the file; other than UTF-8 it is worth a note to the user, who may not know. where: its first line.
    """

    name: str
    path: str
    registry: Registry = field(repr=False)
    state: State = field(repr=False)
    workloads: tuple[Workload, ...] = (Workload(),)
    axes: tuple[Axis, ...] = ()
    skips: tuple[Rule, ...] = ()
    baseline: Baseline = field(default_factory=Baseline)
    encoding: str = "UTF-8"
    where: Where = NOWHERE

    def plan(self) -> ModelPlan:
        """The model as written, axes aside.

        Raises: BlueprintError with everything that stands against it.
        """
        reader = Reader(self.registry, self.where)
        plan = resolve(self.state, reader)
        reader.raise_problems()
        assert plan is not None
        return plan

    def combinations(self, limit: int = DEFAULT_LIMIT) -> Combinations:
        """The rows of the study; one row without axes.

        Raises: UsageError above the limit, BlueprintError where no row is left.
        """
        reader = Reader(self.registry, self.where)
        return combine(self.state, self.axes, self.skips, self.baseline, reader, limit)

    def resolved(self) -> dict[str, Any]:
        """Every field with its value in force, as plain data that loads again."""
        return {"name": self.name, **resolved(self.state), "workloads": [w.written() for w in self.workloads]}

    @property
    def digest(self) -> str:
        """sha256 of the resolved blueprint and its study, whatever the order in which mappings were written."""
        document = {
            "blueprint": self.resolved(),
            "axes": [[axis.name, [[o.text, plain(o.node)] for o in axis.options]] for axis in self.axes],
            "skip": [{entry.key: plain(entry.value) for entry in rule.conditions} for rule in self.skips],
            "baseline": self.baseline.indexes,
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
