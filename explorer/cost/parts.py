"""The blocks of a plan and the plan as a whole, as modules on meta."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from explorer.assembly.build import build_block, build_model
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.positions import Positions
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.cost.observing import dtype_of
from explorer.cost.walk import Subject


@dataclass(frozen=True)
class Part:
    """A block of a stack; layers: how many of its layers are of it."""

    stack: StackPlan
    name: str
    layers: int

    @property
    def label(self) -> str:
        return self.stack.label(self.name)

    @property
    def in_encoder(self) -> bool:
        return self.stack.name == "encoder"

    @property
    def caches(self) -> bool:
        """An encoder, and a block that is not causal, keep nothing."""
        return not self.in_encoder and self.stack.blocks[self.name].causal

    @property
    def window(self) -> int | None:
        return self.stack.blocks[self.name].window


def parts_of(plan: ModelPlan) -> tuple[Part, ...]:
    """All blocks of all stacks."""
    return tuple(Part(stack, name, layers) for stack in plan.stacks for name, layers in stack.counts.items())


@dataclass
class Subjects:
    """Builds each module of a plan once per dtype."""

    plan: ModelPlan
    _made: dict[tuple[str, str], Subject] = field(default_factory=dict)

    def block(self, part: Part, dtype: str = "bfloat16") -> Subject:
        key = part.label, dtype
        if key not in self._made:
            module = build_block(self.plan, part.label, device="meta", dtype=dtype_of(dtype))
            self._made[key] = self._subject(module, part.caches, dtype)
        return self._made[key]

    def model(self, dtype: str = "bfloat16") -> Subject:
        key = "", dtype
        if key not in self._made:
            module = build_model(self.plan, device="meta", dtype=dtype_of(dtype))
            caches = all(part.caches for part in parts_of(self.plan) if part.stack is self.plan.stack)
            self._made[key] = self._subject(module, caches, dtype)
        return self._made[key]

    def _subject(self, module: Model | BlockModule, caches: bool, dtype: str) -> Subject:
        kept = caches and "cache" not in module.stack.intake.limits
        return Subject(module, self.plan, kept, dtype_of(dtype))


def longest(plan: ModelPlan) -> int | None:
    """The shortest learned position table: no workload can be longer."""
    with torch.device("meta"):
        positions = [Positions(plan.dim).embedding(stack.base) for stack in plan.stacks]
    return min((p.max_tokens for p in positions if p is not None and p.max_tokens is not None), default=None)
