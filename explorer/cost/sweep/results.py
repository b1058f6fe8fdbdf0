"""What a sweep found, row by row: the same as `count` says of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from explorer.blueprint.plan import block_label
from explorer.blueprint.varied import Varied
from explorer.blueprint.workload import Workload
from explorer.cost.costs import BlockParams, Cost, Counted, KvBytes, Params
from explorer.cost.growth import Rate
from explorer.cost.ledger.rows import Counts
from explorer.cost.memory.memory import Memory, memory, weight_bytes
from explorer.cost.sweep.passes import Flows, Passed
from explorer.cost.sweep.spread import Spread
from explorer.cost.sweep.structure import Structure
from explorer.cost.sweep.sweep import SIZED, Sweep
from explorer.cost.sweep.tables import Tables, tables
from explorer.cost.sweep.terms import V
from explorer.cost.sweep.values import Amount, Size, Use
from explorer.cost.usage import groups_of

Block = tuple[str, str]


@dataclass(eq=False)
class Results:
    """The rows of a sweep that are counted together."""

    sweep: Sweep

    def counted(self, place: int) -> Counted:
        """What `count` returns for the plan of a place."""
        structure = self._study.structure.at(place)
        costs = [cost for index in range(len(self.sweep.workloads)) for cost in self._costs(index, structure, place)]
        return Counted(self.params(structure, place), tuple(costs))

    def params(self, structure: Structure, place: int) -> Params:
        sizes = self.sweep.sizes()
        blocks = tuple(
            BlockParams(
                block_label(*this),
                times,
                _layer(sizes, this, place, Size()).params,
            )
            for this, times in structure.counted()
        )
        if structure.whole:
            held = self.tables.at(place)
            size = _whole(sizes, place) + held.size
            used, reason = self._used(place)
            used = None if used is None else used + held.numel
            return Params(blocks, size.params, used, reason, size.repeated)
        if len(blocks) > 1:
            return Params(blocks, None, None, "there are several blocks and no model: write `layers`", 0)
        return Params(blocks, None, *self._used(place), 0)

    def _used(self, place: int) -> tuple[int | None, str | None]:
        """What one token uses, tables of positions apart."""
        uses = self.sweep.uses
        return (self.own_uses.at(place) + _sum((term.at(place).whole for term in uses.terms.values()), Use())).uses

    def _costs(self, index: int, structure: Structure, place: int) -> Iterator[Cost]:
        workload = self.sweep.settled[index].at(place)
        assert isinstance(workload, Workload), workload
        amounts, rates = self.sweep.amounts[index], self.sweep.rates[index]
        sizes, joins = self.sweep.sizes(workload.dtype), self.joins[index].at(place).joins or {}
        for this, _ in structure.counted():
            amount = _layer(amounts, this, place, Amount()) + joins.get(this, Amount())
            rate = _layer(rates, this, place, Rate())
            size = _layer(sizes, this, place, Size())
            cost = _cost(workload, "block", block_label(*this), amount, rate, size)
            memory = self._memory(index, this, place, size, amount)
            yield replace(cost, varies_by_layer=self._spreads[index].of(place, this), memory=memory)
        if structure.whole:
            amount = _whole(amounts, place) + joins.get(None, Amount())
            size = _whole(sizes, place) + self.tables_in(workload.dtype).at(place).size
            cost = _cost(workload, "model", "model", amount, _whole(rates, place), size)
            yield replace(cost, memory=self._memory(index, None, place, size, amount))

    def _memory(self, index: int, block: Block | None, place: int, size: Size, amount: Amount) -> Memory:
        workload = self.sweep.settled[index].at(place)
        assert isinstance(workload, Workload), workload
        needs = self.sweep.memories[index].needs(block)
        return memory(workload, size.stored, needs.need(lambda term: term.at(place), max, amount.cache_bytes))

    def warnings(self, place: int) -> list[str]:
        """What the components of a row said while they were built."""
        cells = (cells.at(place) for cells in self._study.cells.values())
        residuals = self.sweep.uses.flows.at(place).warned
        return list(dict.fromkeys([*residuals, *(text for cell in cells for text in getattr(cell, "warned", ()))]))

    @cached_property
    def _spreads(self) -> list[Spread]:
        sweep = self.sweep
        pairs = zip(sweep.workloads, sweep.amounts, strict=True)
        return [Spread(sweep.study(w.dtype), passed, sweep.bench.observations) for w, passed in pairs]

    @cached_property
    def own_uses(self) -> Varied[Use]:
        usages = self.sweep.bench.usages

        def own(flows: Flows) -> Use:
            groups = [group for flow in flows.flows for group in groups_of(flow.own)]
            return _sum((Use(usages.group(group)) for group in groups), Use())

        return Varied.map(own, self.sweep.uses.flows)

    @property
    def _study(self) -> Any:
        return self.sweep.study()

    @cached_property
    def tables(self) -> Varied[Tables]:
        return self.tables_in(SIZED)

    def tables_in(self, dtype: str) -> Varied[Tables]:
        """The tables of positions that act in attention, with parameters of a dtype."""
        return tables(self.sweep.study(dtype), self.sweep.sizes(dtype).flows, self.sweep.bench.observations)

    @cached_property
    def joins(self) -> list[Varied[Tables]]:
        """For each workload the tables with what their gradients take."""
        pairs = zip(self.sweep.workloads, self.sweep.amounts, strict=True)
        return [tables(self.sweep.study(w.dtype), passed.flows, self.sweep.bench.observations) for w, passed in pairs]


def _cost(workload: Workload, scope: str, name: str, amount: Amount, rate: Rate, size: Size) -> Cost:
    counts = amount.counts
    notes = (f"matmul_flops_exact: {counts.exact_reason}",) if counts.exact_reason else ()
    kv = KvBytes(*rate.numbers(), amount.cache_bytes)
    by_kind = {kind: counts for kind, counts in amount.by_kind.items() if counts != Counts()}
    return Cost(workload, scope, name, counts, weight_bytes(workload, size.stored), kv, by_kind, notes)


def _whole(passed: Passed[V], place: int) -> V:
    own: V = passed.own.at(place)[None]
    return _sum((term.at(place).whole for term in passed.terms.values()), own)


def _layer(passed: Passed[V], block: Block, place: int, nothing: V) -> V:
    own: V = passed.own.at(place).get(block, nothing)
    return _sum((term.at(place).layer for group, term in passed.terms.items() if group.of == block), own)


def _sum(values: Any, start: V) -> V:
    total = start
    for value in values:
        total = total + value
    return total
