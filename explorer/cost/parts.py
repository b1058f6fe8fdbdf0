"""The blocks of a plan and the plan as a whole, as modules on meta."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from explorer.assembly.build import build_block, build_model
from explorer.assembly.construction import dtype_of
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.positions import Positions
from explorer.blueprint.plan import ModelPlan, StackPlan
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


def parts_of(plan: ModelPlan) -> tuple[Part, ...]:
    """The blocks that layers are of; where no layers are written, every block that is defined."""
    parts = [Part(stack, name, layers) for stack in plan.stacks for name, layers in stack.counts.items()]
    return tuple(part for part in parts if part.layers or not plan.whole)


@dataclass
class Subjects:
    """Builds each module of a plan once per dtype."""

    plan: ModelPlan
    _made: dict[tuple[str, str], Subject] = field(default_factory=dict)

    def block(self, part: Part, dtype: str = "bfloat16") -> Subject:
        key = part.label, dtype
        if key not in self._made:
            module = build_block(self.plan, part.label, device="meta", dtype=dtype_of(dtype))
            self._made[key] = self._subject(module, part.label, part.caches, dtype)
        return self._made[key]

    def model(self, dtype: str = "bfloat16") -> Subject:
        key = "", dtype
        if key not in self._made:
            module = build_model(self.plan, device="meta", dtype=dtype_of(dtype))
            caches = all(part.caches for part in parts_of(self.plan) if part.stack is self.plan.stack)
            self._made[key] = self._subject(module, "model", caches, dtype)
        return self._made[key]

    def _subject(self, module: Model | BlockModule, label: str, caches: bool, dtype: str) -> Subject:
        kept = caches and "cache" not in module.stack.intake.limits
        return Subject(module, self.plan, label, kept, dtype_of(dtype))


def longest(plan: ModelPlan) -> dict[str, int]:
    """Tokens that the learned position table of a stack holds, by the stack's name; none where it has no table.

    Raises: RefusedError where a position refuses its sizes.
    """
    with torch.device("meta"):
        positions = {stack.name: Positions(plan.dim).embedding(stack.base) for stack in plan.stacks}
    return {name: p.max_tokens for name, p in positions.items() if p is not None and p.max_tokens is not None}
