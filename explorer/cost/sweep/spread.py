"""How far the layers of one block differ: with their place, where a residual reads all layers before, or by depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from explorer.cost.parts.observation import Observations
from explorer.cost.parts.part import Role
from explorer.cost.sweep.cells import BranchCell, NormCell
from explorer.cost.sweep.flow import Flow, Pattern
from explorer.cost.sweep.passes import Passed
from explorer.cost.sweep.study import Cell, Study
from explorer.cost.sweep.terms import call
from explorer.cost.sweep.values import Amount

Layers = Counter[int]
"""matmul_flops by layer."""


@dataclass(eq=False)
class Spread:
    """The products of each layer, in the passes of one workload."""

    study: Study
    amounts: Passed[Amount]
    observations: Observations
    _own: dict[tuple[int, tuple[str, str]], Layers] = field(default_factory=dict)
    _calls: dict[tuple[int, int], tuple[Pattern, Layers]] = field(default_factory=dict)

    def of(self, place: int, block: tuple[str, str]) -> tuple[int, int] | None:
        """Least and most matmul_flops of the layers of a block, where they differ."""
        flow = next((flow for flow in self.amounts.flows.at(place).flows if block in flow.last), None)
        if flow is None or flow.block is not None:
            return None
        layers = Counter(self._of_residuals(flow, block))
        for group, cells in self.study.cells.items():
            if group.of == block and (pattern := flow.pattern(group)) is not None:
                layers.update(self._of_calls(pattern, cells.at(place)))
        products = {layers[entry.part.role.layer or 0] for entry in flow.own if _is_in(entry.part.role, block)}
        return (min(products), max(products)) if len(products) > 1 else None

    def _of_residuals(self, flow: Flow, block: tuple[str, str]) -> Layers:
        key = id(flow), block
        if key not in self._own:
            entries = [entry for entry in flow.own if _is_in(entry.part.role, block)]
            self._own[key] = _sum((entry.part.role.layer or 0, entry.matmul_flops) for entry in entries)
        return self._own[key]

    def _of_calls(self, pattern: Pattern, cell: Cell) -> Layers:
        if not isinstance(cell, BranchCell | NormCell):
            return Counter()
        key = id(pattern), id(cell)
        if key not in self._calls:
            by_site = isinstance(cell, BranchCell) and "site" in cell.chosen.picks
            found: Layers = Counter()
            for ask in pattern.asks:
                for site in ask.sites:
                    entry = call(self.observations, pattern, cell, ask.asked, site if by_site else None)
                    found[0 if site is None else site.layer] += entry.matmul_flops
            self._calls[key] = pattern, found  # kept, so that no other pattern gets its id
        return self._calls[key][1]


def _sum(pairs: Iterable[tuple[int, int]]) -> Layers:
    found: Layers = Counter()
    for layer, products in pairs:
        found[layer] += products
    return found


def _is_in(role: Role, block: tuple[str, str]) -> bool:
    return role.layer is not None and (role.stack, role.block) == block
