"""Builds the layers of a stack from its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from explorer.assembly.block import Block
from explorer.assembly.init import silent_branch
from explorer.assembly.intake import Intake
from explorer.assembly.menus import MENUS
from explorer.assembly.positions import PositionMaker, Positions
from explorer.assembly.refusals import refuse, undefined_placement
from explorer.assembly.residual import Residual
from explorer.assembly.sites import CROSS, Sites, sublayers
from explorer.assembly.sublayer import Branch, ParallelSublayers, Sublayer, norms_at
from explorer.assembly.wiring import Wiring, forward_names
from explorer.blueprint.plan import BlockPlan
from explorer.errors import PluginError, RefusedError
from explorer.registry.chosen import Chosen, Make
from explorer.registry.sites import Site


@dataclass
class BlockBuilder:
    """Builds the layers of one stack; positions and places in the cache are counted over all of them.

    make: see `Make`.
    """

    sites: Sites
    positions: Positions
    make: Make = Chosen.build
    slots: int = 0
    cross: bool = False
    limits: dict[str, str] = field(default_factory=dict)  # see `Intake`
    _residual_class: type[Residual] | None = None

    def block(self, layer: int) -> Block:
        """One layer.

        Raises: RefusedError where a component refuses its sizes or the combination is undefined.
        """
        stack = self.sites.stack
        block = stack.blocks[stack.layers[layer]]
        refuse(block, stack)
        sites = list(self.sites.of(layer))
        chosen = sublayers(block)
        if block.shared_norm is None:
            pairs = zip(chosen, sites, strict=True)
            return Block({name: self._sublayer(block, name, chosen[name], site) for name, site in pairs})
        if not sites:
            return Block({})
        return Block({"parallel": self._parallel(block, chosen, sites[0])})

    def leave(self) -> Residual | None:
        """The residual that closes the state, where its class overrides `leave`."""
        if self._residual_class is None or self._residual_class.leave is Residual.leave:
            return None
        return self._residual(self.sites.end())

    def intake(self) -> Intake:
        """What the layers built so far take besides x."""
        return Intake(self.slots, dict(self.limits), self.cross)

    def _residual(self, site: Site) -> Residual:
        chosen = self.sites.stack.residual
        residual = self.make(chosen, {"dim": self.sites.plan.dim, "site": site})
        if not isinstance(residual, Residual):
            component = chosen.component
            raise PluginError(
                f"residual '{component.name}' of {component.origin} must build an explorer.Residual, "
                f"not {type(residual).__name__}"
            )
        self._residual_class = type(residual)
        return residual

    def _sublayer(self, block: BlockPlan, name: str, chosen: Chosen, site: Site) -> Sublayer:
        branch = self.branch(block, name, chosen, site)
        residual = self._placed_residual(block, site, (branch,))
        return Sublayer(branch, residual, norms_at(block.placement, lambda: self._norm(block)))

    def _parallel(self, block: BlockPlan, chosen: Mapping[str, Chosen], site: Site) -> ParallelSublayers:
        branches = {name: self.branch(block, name, value, site) for name, value in chosen.items()}
        residual = self._placed_residual(block, site, tuple(branches.values()))
        norms = norms_at(block.placement, lambda: self._norm(block))
        own: dict[str, nn.Module] = {}
        if not block.shared_norm and norms["norm"] is not None:
            own = {name: self._norm(block) for name in branches}
            norms["norm"] = None
        return ParallelSublayers(branches, residual, norms, own)

    def _placed_residual(self, block: BlockPlan, site: Site, branches: tuple[Branch, ...]) -> Residual:
        chosen = self.sites.stack.residual
        residual = self._residual(site)
        reason = undefined_placement(chosen, type(residual), block.placement)
        reason = reason or silent_branch(type(residual), [branch.module for branch in branches])
        if reason is not None:
            raise RefusedError(reason, chosen.where)
        return residual

    def _norm(self, block: BlockPlan) -> nn.Module:
        norm: nn.Module = self.make(block.norm, {"dim": self.sites.plan.dim})
        return norm

    def branch(self, block: BlockPlan, name: str, chosen: Chosen, site: Site) -> Branch:
        """One sublayer of a block, by itself.

        Raises: RefusedError where it refuses its sizes, or cannot be what `name` says.
        """
        cross = name == CROSS
        menu = MENUS[name](self.sites.plan, block, self.positions, site)
        module = self.make(chosen, menu)
        names = forward_names(module, chosen)
        if cross and "context" not in names:
            raise RefusedError(
                f"attention '{chosen.short()}' cannot be cross-attention: its forward takes no `context`", chosen.where
            )
        if name in _ATTENTIONS:
            self._note_limits(block, chosen, names, "context_mask" if cross else "mask")
        self.cross |= cross
        wiring = Wiring(names, self.slots, cross)
        self.slots += "cache" in names
        maker = menu.get("position")
        positions = maker.given if isinstance(maker, PositionMaker) else ()
        return Branch(module, wiring, block.dropout.sublayer, tuple(dict.fromkeys(positions)))

    def _note_limits(self, block: BlockPlan, chosen: Chosen, names: tuple[str, ...], mask: str) -> None:
        """mask: what this attention's mask is called for the whole stack."""
        if not block.causal:
            self.limits.setdefault("cache", f"block '{block.name}' has causal: false: it keeps no cache")
        for what, name in (("cache", "cache"), (mask, "mask")):
            if name not in names:
                self.limits.setdefault(what, f"attention '{chosen.short()}' takes no `{name}`")


_ATTENTIONS = frozenset({"attention", CROSS})
