"""What may stand at one place of a model: a component, built from the fields that it depends on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from explorer.assembly.block_builder import BlockBuilder
from explorer.assembly.construction import construction
from explorer.assembly.embedding import Embedding, make_embedding
from explorer.assembly.head import make_head
from explorer.assembly.intake import Intake
from explorer.assembly.menus import MENUS
from explorer.assembly.positions import Positions
from explorer.assembly.sites import Sites, sublayers
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import Branch
from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan
from explorer.cost.parts.workshop import Workshop, asked_for
from explorer.errors import PluginError, RefusedError
from explorer.registry.chosen import Chosen
from explorer.registry.sites import Site

ATTENTION = ("dim", "heads", "head_dim", "attention", "bias", "causal", "window", "position", "dropout")
FIELDS = {
    "attention": ATTENTION,
    "cross_attention": (*ATTENTION, "cross_attention"),
    "feedforward": ("dim", "vocab", "activation", "bias", "dropout", "feedforward"),
    "norm": ("dim", "norm"),
    "final_norm": ("dim", "norm", "placement", "final_norm"),
    "outside": (
        "dim", "vocab", "embedding", "norm", "position", "heads", "head_dim", "causal", "dropout", "head",
        "tie_embeddings",
    ),
}  # fmt: skip
"""The fields of a blueprint on which a component at each place of a model depends, besides where it stands."""


@dataclass(frozen=True)
class Refused:
    """No component: why it cannot be built. plugin: the fault is its code's, not its sizes'."""

    reason: str

    @staticmethod
    def by(error: RefusedError | PluginError) -> Refused:
        return Refused(error.message if isinstance(error, RefusedError) else str(error))


@dataclass(frozen=True, eq=False)
class BranchCell:
    """A sublayer of one block. key: equal for cells that build the same at every site.

    limits: what cannot be given to it, as in `Intake`.
    """

    plan: ModelPlan
    stack: StackPlan
    block: BlockPlan
    name: str
    branch: Branch
    limits: tuple[tuple[str, str], ...]
    key: Hashable
    workshop: Workshop
    dtype: torch.dtype
    warned: tuple[str, ...] = ()

    @property
    def chosen(self) -> Chosen:
        return sublayers(self.block)[self.name]

    @property
    def module(self) -> nn.Module:
        return self.branch.module

    @property
    def shares(self) -> bool:
        """Whether layers hand it something: it then costs what its place says."""
        return "shared" in self.branch.wiring.names

    def at(self, site: Site) -> Branch:
        """The sublayer as it is built at a site."""
        if "site" not in self.chosen.picks:
            return self.branch
        with construction(0, "meta", self.dtype):
            return _builder(self.plan, self.stack, self.workshop).branch(self.block, self.name, self.chosen, site)


@dataclass(frozen=True, eq=False)
class NormCell:
    """A norm; module None: nothing stands there."""

    module: nn.Module | None
    chosen: Chosen
    key: Hashable
    warned: tuple[str, ...] = ()
    shares: ClassVar[bool] = False


@dataclass(frozen=True, eq=False)
class OutsideCell:
    """What stands before and behind the stacks. stacks: each without layers, for what it adds to the embedding."""

    stacks: tuple[Stack, ...]
    embedding: Embedding | None
    head: nn.Module | None
    key: Hashable
    warned: tuple[str, ...] = ()

    @property
    def modules(self) -> list[nn.Module]:
        """Whose parameters are the model's, once."""
        found = [self.embedding, self.head, *(position for stack in self.stacks for position in stack._position)]
        return [module for module in found if module is not None]


def branch_cell(
    plan: ModelPlan | None, stack: str, block: str, name: str, workshop: Workshop
) -> BranchCell | Refused | None:
    """A sublayer of a block of a plan; None where the plan does not have it."""
    found = _block(plan, stack, block)
    if plan is None or found is None or name not in sublayers(found[1]):
        return None
    of, this = found
    chosen = sublayers(this)[name]
    builder = _builder(plan, of, workshop)
    site = _last_site(plan, of, block, list(sublayers(this)).index(name))
    try:
        branch = builder.branch(this, name, chosen, site)
        menu = MENUS[name](plan, this, builder.positions, site)
    except (RefusedError, PluginError) as error:
        return Refused.by(error)
    without_site = {key: value for key, value in menu.items() if key != "site"}
    key = name, asked_for(chosen, without_site), branch.dropout, branch.wiring.names
    return BranchCell(
        plan, of, this, name, branch, tuple(builder.limits.items()), key, workshop, torch.get_default_dtype()
    )


def norm_cell(plan: ModelPlan | None, stack: str, block: str, workshop: Workshop) -> NormCell | Refused | None:
    """The norm of a block's sublayers."""
    found = _block(plan, stack, block)
    if plan is None or found is None:
        return None
    return _norm(found[1].norm, plan.dim, workshop)


def final_norm_cell(plan: ModelPlan | None, stack: str, workshop: Workshop) -> NormCell | Refused | None:
    """The norm behind a stack; None where there is none."""
    of = next((of for of in plan.stacks if of.name == stack), None) if plan is not None else None
    if plan is None or of is None or of.final_norm is None:
        return None
    return _norm(of.final_norm, plan.dim, workshop)


def outside_cell(plan: ModelPlan | None, workshop: Workshop) -> OutsideCell | Refused | None:
    """Embedding, head, and what each stack adds to the embedding."""
    if plan is None:
        return None
    try:
        embedding = make_embedding(plan)
        head = make_head(plan, None if embedding is None else embedding.table)
        stacks = tuple(_empty(plan, stack, workshop) for stack in plan.stacks)
    except (RefusedError, PluginError) as error:
        return Refused.by(error)
    kinds = tuple((id(stack._position[0]) if stack._position else None, stack.dropout) for stack in stacks)
    norm = plan.embedding.norm
    embedded = plan.embedding.scale, plan.embedding.types, None if norm is None else asked_for(norm, {"dim": plan.dim})
    key = plan.dim, plan.vocab, embedded, kinds, asked_for(plan.head, {}), plan.tie_embeddings
    return OutsideCell(stacks, embedding, head, key)


def _empty(plan: ModelPlan, stack: StackPlan, workshop: Workshop) -> Stack:
    positions = Positions(plan.dim, stack.base.position, workshop.make, stack.name)
    base = positions.embedding(stack.base)
    dropout = stack.base.dropout.embedding
    return Stack([], positions.module(base), Intake(0, {}, False), position=base, dropout=dropout)


def _norm(chosen: Chosen, dim: int, workshop: Workshop) -> NormCell | Refused:
    menu = {"dim": dim}
    try:
        return NormCell(workshop.make(chosen, menu), chosen, asked_for(chosen, menu))
    except (RefusedError, PluginError) as error:
        return Refused.by(error)


def _builder(plan: ModelPlan, stack: StackPlan, workshop: Workshop) -> BlockBuilder:
    sites = sites_of(plan, stack)
    return BlockBuilder(sites, Positions(plan.dim, stack.base.position, workshop.make, stack.name), workshop.make)


def sites_of(plan: ModelPlan, stack: StackPlan) -> Sites:
    return Sites(plan, stack, encoder=plan.encoder is not None and stack.name == plan.encoder.name)


def _block(plan: ModelPlan | None, stack: str, block: str) -> tuple[StackPlan, BlockPlan] | None:
    found: Iterator[StackPlan] = iter(() if plan is None else plan.stacks)
    return next(((of, of.blocks[block]) for of in found if of.name == stack and block in of.blocks), None)


def _last_site(plan: ModelPlan, stack: StackPlan, block: str, sublayer: int) -> Site:
    """The site of a sublayer in the last layer of its block, or where no layer is of it in the place of the last."""
    if block not in stack.layers:
        stack = replace(stack, layers=(*stack.layers[:-1], block))
    last = max(layer for layer, this in enumerate(stack.layers) if this == block)
    sites: Sequence[Site] = list(sites_of(plan, stack).of(last))
    return sites[min(sublayer, len(sites) - 1)]
