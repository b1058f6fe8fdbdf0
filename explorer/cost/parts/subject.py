"""The blocks of a plan and the plan as a whole on meta, put together from components that are built once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.build import build_block, build_model
from explorer.assembly.construction import dtype_of
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.positions import Positions
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.cost.parts.workshop import Workshop
from explorer.cost.stored import Parameters, Stored, parameters_of


@dataclass(frozen=True)
class BlockName:
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


def blocks_of(plan: ModelPlan) -> tuple[BlockName, ...]:
    """The blocks that layers are of; where no layers are written, every block that is defined."""
    blocks = [BlockName(stack, name, layers) for stack in plan.stacks for name, layers in stack.counts.items()]
    return tuple(block for block in blocks if block.layers or not plan.whole)


@dataclass(frozen=True)
class Subject:
    """A model or one block on meta, with its plan. caches: whether it keeps keys and values.

    of: the block, where it is one. entangled: components hold parameters that others hold too; the module is then put
    together from components of its own.
    """

    module: Model | BlockModule
    plan: ModelPlan
    of: BlockName | None
    caches: bool
    dtype: torch.dtype
    entangled: bool = False

    @property
    def hands_on(self) -> bool:
        """Whether what layers share may go into their caches."""
        wirings = [wiring for stack in self.stacks for part in stack.parts() for wiring in part.wirings]
        return any("shared" in wiring.names and "cache" in wiring.names for wiring in wirings)

    @property
    def label(self) -> str:
        return "model" if self.of is None else self.of.label

    @property
    def reads_source(self) -> bool:
        """Whether an encoder, or a block's cross-attention, reads a source."""
        module = self.module
        return module.encoder is not None if isinstance(module, Model) else module.stack.intake.cross

    @property
    def stacks(self) -> list[Stack]:
        """Those that the module has, the encoder first."""
        encoder = self.module.encoder if isinstance(self.module, Model) else None
        return [stack for stack in (encoder, self.module.stack) if stack is not None]

    @property
    def common(self) -> dict[int, Tensor]:
        """Parameters that several parts of a pass may read, by id: tables of the input and of positions."""
        if self.entangled:
            return {id(p): p for p in self.module.parameters()}
        modules: list[nn.Module] = [stack.positions for stack in self.stacks]
        if isinstance(self.module, Model) and self.module.embedding is not None:
            modules.append(self.module.embedding)
        return {id(p): p for module in modules for p in module.parameters()}


@dataclass
class Subjects:
    """Builds each module of a plan once per dtype, from components that `workshops` may have built for other plans."""

    plan: ModelPlan
    workshops: dict[str, Workshop] = field(default_factory=dict)
    _made: dict[tuple[str, str], Subject] = field(default_factory=dict)

    def block(self, block: BlockName, dtype: str = "bfloat16") -> Subject:
        return self._subject(block, dtype, block.caches)

    def model(self, dtype: str = "bfloat16") -> Subject:
        blocks = [block for block in blocks_of(self.plan) if block.stack is self.plan.stack]
        return self._subject(None, dtype, all(block.caches for block in blocks))

    def _subject(self, block: BlockName | None, dtype: str, caches: bool) -> Subject:
        key = "" if block is None else block.label, dtype
        if key not in self._made:
            workshop = self.workshops.setdefault(dtype, Workshop())
            module = self._module(block, dtype, workshop)
            entangled = _entangled(module, workshop)
            if entangled:
                module = self._module(block, dtype, None)
            kept = caches and "cache" not in module.stack.intake.limits
            self._made[key] = Subject(module, self.plan, block, kept, dtype_of(dtype), entangled)
        return self._made[key]

    def _module(self, block: BlockName | None, dtype: str, workshop: Workshop | None) -> Model | BlockModule:
        make = {} if workshop is None else {"make": workshop.make}
        if block is None:
            return build_model(self.plan, device="meta", dtype=dtype_of(dtype), **make)
        return build_block(self.plan, block.label, device="meta", dtype=dtype_of(dtype), **make)


def _entangled(module: Model | BlockModule, workshop: Workshop) -> bool:
    stacks = [module.encoder, module.stack] if isinstance(module, Model) else [module.stack]
    parts = [part for stack in stacks if stack is not None for part in stack.parts()]
    return any(piece in workshop.entangled for part in parts for piece in pieces(part))


def pieces(part: Sublayer | ParallelSublayers) -> list[nn.Module]:
    """The components of one residual site, each as often as it stands there."""
    own = list(part.norms.values()) if isinstance(part, ParallelSublayers) else []
    found = [part.residual, part.norm, *own, *part.branches, part.norm_out, part.norm_post]
    return [piece for piece in found if piece is not None]


@dataclass(frozen=True)
class Holdings:
    """Modules whose parameters are a model's, a block's or a layer's, each with how often it stands there."""

    modules: tuple[tuple[nn.Module, int], ...]

    @staticmethod
    def of(modules: Iterable[nn.Module]) -> Holdings:
        times = Counter(modules)
        return Holdings(tuple(times.items()))

    @property
    def params(self) -> int:
        """Distinct parameters."""
        return sum(self.stored.values())

    @property
    def stored(self) -> Parameters:
        """Distinct parameters by how they are stored; one that a module holds twice counts once."""
        found: Counter[Stored] = Counter()
        for module, times in self.modules:
            for stored, count in parameters_of(module).items():
                found[stored] += times * count
        return found

    @property
    def repeated(self) -> int:
        """Parameters of modules that hold one under two names: how many come too often in a list of names."""
        names = (dict(module.named_parameters(remove_duplicate=False)) for module, _ in self.modules)
        counted = zip(names, self.modules, strict=True)
        return sum(times * sum(p.numel() for p in named.values()) for named, (_, times) in counted) - self.params


def holdings(subject: Subject) -> Holdings:
    """What holds the parameters of a model, or of a block (whose positions, enter and leave belong to the model)."""
    module = subject.module
    if isinstance(module, BlockModule):
        return layer_holdings(module.block) if not subject.entangled else Holdings.of([module.block])
    if subject.entangled:
        return Holdings.of([module])
    inside = [piece for stack in subject.stacks for part in stack.parts() for piece in pieces(part)]
    outside = [module.embedding, module.head]
    outside += [piece for stack in subject.stacks for piece in (stack.positions, stack.leave, stack.final_norm)]
    return Holdings.of([*inside, *(piece for piece in outside if piece is not None)])


def layer_holdings(layer: Block) -> Holdings:
    """What holds the parameters of one layer."""
    return Holdings.of(piece for part in layer.parts() for piece in pieces(part))


def numel(module: nn.Module) -> int:
    """Distinct parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def longest(plan: ModelPlan) -> dict[str, int]:
    """Tokens that the learned position table of a stack holds, by the stack's name; none where it has no table.

    Raises: RefusedError where a position refuses its sizes.
    """
    with torch.device("meta"):
        positions = {stack.name: Positions(plan.dim).embedding(stack.base) for stack in plan.stacks}
    return {name: p.max_tokens for name, p in positions.items() if p is not None and p.max_tokens is not None}
