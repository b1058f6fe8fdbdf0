"""Numbers of many rows at once: sums of what each term has at each place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial, reduce
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.varied import Places, Varied
from explorer.blueprint.workload import Workload
from explorer.cost.costs import incomplete_text
from explorer.cost.growth import Rate
from explorer.cost.ledger.rows import Counts
from explorer.cost.memory.memory import Memory, Need, gradient_bytes, optimizer_bytes, weight_bytes
from explorer.cost.stored import Parameters
from explorer.cost.sweep.passes import Passed
from explorer.cost.sweep.results import Results
from explorer.cost.sweep.structure import Structure
from explorer.cost.sweep.values import Amount, Size

Numbers = NDArray[Any]
Terms = list[Varied[Any]]
"""Values whose sum is what is wanted, each varying along few axes."""

_SAFE = 2**62
COUNTS = ("matmul_flops", "elementwise_ops", "moved_bytes", "fused_bytes", "kernels")


@dataclass(frozen=True)
class Column:
    """Numbers, and where they are not known (None: they are everywhere)."""

    numbers: Numbers
    unknown: NDArray[np.bool_] | None = None


@dataclass(eq=False)
class Columns:
    """Numbers of the rows at some places, which have one structure. block: of the last layer of a block (stack, name);
    None: of the whole model."""

    results: Results
    structure: Structure
    places: Places

    def costs(self, index: int, block: tuple[str, str] | None) -> dict[str, Column]:
        """What one workload takes."""
        results, sweep = self.results, self.results.sweep
        amounts = [*_terms(sweep.amounts[index], block, Amount()), *_joins(results, index, block)]
        found = {name: Column(self._sum(amounts, partial(_count, name))) for name in COUNTS}
        unknown = self._sum(amounts, lambda amount: int(amount.counts.matmul_flops_exact is None)) > 0
        exact = self._sum(amounts, lambda amount: amount.counts.matmul_flops_exact or 0)
        found["matmul_flops_exact"] = Column(exact, unknown if unknown.any() else None)
        found["kv_cache_bytes"] = Column(self._sum(amounts, lambda amount: amount.cache_bytes))
        rates = _terms(sweep.rates[index], block, Rate())
        found["kv_bytes_per_token"] = Column(self._fractions(rates, lambda rate: rate.opened))
        found["kv_bytes_per_token_full_windows"] = Column(self._fractions(rates, lambda rate: rate.full))
        memory = self._memory(index, block)
        return {**found, "weight_bytes": memory["memory_weights"], **memory}

    def incomplete(self, index: int, block: tuple[str, str] | None) -> Varied[str]:
        """Operators without a rule and their calls."""
        amounts = _terms(self.results.sweep.amounts[index], block, Amount())
        some = [term for term in amounts if any(amount.counts.incomplete for amount in term.values)]
        if not some:
            return Varied.constant("", amounts[0].shape)
        return Varied.map(lambda *found: incomplete_text(_sum_counts(found)), *some)

    def params(self, block: tuple[str, str] | None) -> Column:
        """Distinct parameters."""
        return Column(self._sum(self._sizes(self.results.sweep.sizes(), block), lambda size: size.params))

    def shared(self) -> Column:
        """Parameters that stand in two places and count once."""
        return Column(self._sum(self._sizes(self.results.sweep.sizes(), None), lambda size: size.repeated))

    def active(self) -> Column:
        """Parameters that one token uses: of the model, or of the block where there is no model."""
        results = self.results
        uses = [results.own_uses, *(_whole(term) for term in results.sweep.uses.terms.values())]
        unknown = self._sum(uses, lambda use: int(use.uses[0] is None)) > 0
        numbers = self._sum(uses, lambda use: use.uses[0] or 0)
        if self.structure.whole:
            numbers = numbers + self._sum([Varied.map(lambda held: held.numel, results.tables)], int)
        return Column(numbers, unknown if unknown.any() else None)

    def _memory(self, index: int, block: tuple[str, str] | None) -> dict[str, Column]:
        """Bytes, by the fields of `Memory`."""
        sweep = self.results.sweep
        workload = sweep.workloads[index].settled()
        sizes = self._sizes(sweep.sizes(workload.dtype), block, workload.dtype)
        held = [partial(_held, workload, of) for of in _held_by(workload)]
        weights, gradients, optimizer = (self._sum(sizes, of) for of in held)
        need = self._need(index, block)
        peak = inference = weights + need.inference
        if workload.phase == "train":
            peak = weights + gradients + optimizer + need.training
        numbers = weights, gradients, optimizer, weights * 0 + need.activations, peak, inference
        return {f"memory_{field.name}": Column(n) for field, n in zip(fields(Memory), numbers, strict=True)}

    def _need(self, index: int, block: tuple[str, str] | None) -> Need:
        """Arrays in the place of numbers, or one number where it is the same in all rows."""
        sweep = self.results.sweep
        cache = self._sum(_terms(sweep.amounts[index], block, Amount()), lambda amount: amount.cache_bytes)
        needs = sweep.memories[index].needs(block)
        dtype = np.int64 if sum(max(term.values) for term in needs.all) < _SAFE else object

        def number(term: Varied[int]) -> Any:
            return term.values[0] if term.is_constant else np.asarray(term.values, dtype)[self._codes(term)]

        return needs.need(number, partial(reduce, np.maximum), cache)

    def _sizes(self, sizes: Passed[Size], block: tuple[str, str] | None, dtype: str | None = None) -> Terms:
        tables = self.results.tables if dtype is None else self.results.tables_in(dtype)
        return _terms(sizes, block, Size()) + ([] if block else [Varied.map(lambda held: held.size, tables, key=id)])

    def _fractions(self, terms: Terms, number: Callable[[Rate], Fraction]) -> Numbers:
        """The sum of fractions: whole numbers, or where one is broken floats, each the nearest to its sum."""
        whole = lcm(*(number(value).denominator for term in terms for value in term.values))
        sums = self._sum(terms, lambda rate: int(number(rate) * whole))
        return sums if whole == 1 or not (sums % whole).any() else sums / whole

    def _sum(self, terms: Terms, number: Callable[[Any], int]) -> Numbers:
        """int64, or where a sum might not fit Python's own integers."""
        tables = [[number(value) for value in term.values] for term in terms]
        most = sum(max(map(abs, table)) for table in tables)
        total: Numbers = np.zeros(len(self.places), np.int64 if most < _SAFE else object)
        for term, table in zip(terms, tables, strict=True):
            if any(table):
                total += np.asarray(table, total.dtype)[self._codes(term)]
        return total

    def _codes(self, term: Varied[Any]) -> NDArray[np.int32]:
        return term.flat(self.places)


def _terms(passed: Passed[Any], block: tuple[str, str] | None, nothing: Any) -> Terms:
    own = Varied.map(lambda sums: sums.get(block, nothing), passed.own, key=id)
    if block is None:
        return [own, *(_whole(term) for term in passed.terms.values())]
    of_block = (term for group, term in passed.terms.items() if group.of == block)
    layers = [Varied.map(lambda term: term.layer, term, key=id) for term in of_block]
    return [own, *layers]


def _whole(term: Varied[Any]) -> Varied[Any]:
    return Varied.map(lambda term: term.whole, term, key=id)


def _joins(results: Results, index: int, block: tuple[str, str] | None) -> Terms:
    return [Varied.map(lambda tables: (tables.joins or {}).get(block, Amount()), results.joins[index], key=id)]


def _sum_counts(amounts: Sequence[Amount]) -> Counts:
    return sum((amount.counts for amount in amounts), Counts())


_PerSize = Callable[[Workload, Parameters], int]


def _held(workload: Workload, of: _PerSize, size: Size) -> int:
    return of(workload, size.stored)


def _held_by(workload: Workload) -> tuple[_PerSize, ...]:
    """What is held for each parameter: the weight, its gradient, the state of the optimizer."""
    if workload.phase == "train":
        return weight_bytes, gradient_bytes, optimizer_bytes
    return weight_bytes, _nothing, _nothing


def _nothing(workload: Workload, parameters: Parameters) -> int:
    return 0


def _count(name: str, amount: Amount) -> int:
    found: int = getattr(amount.counts, name)
    return found
