"""Memory of all rows of a study in one workload: sums and maxima of what varies along few axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from explorer.blueprint.varied import Varied
from explorer.cost.memory.activations import Recompute
from explorer.cost.memory.memory import Need
from explorer.cost.parts.failures import CannotRun, understood
from explorer.cost.sweep.cells import BranchCell, NormCell, OutsideCell
from explorer.cost.sweep.flow import OUTSIDE, Group
from explorer.cost.sweep.loads import NOTHING, Flags, Key, Load, Loads, NotAlike, Share
from explorer.cost.sweep.outline import Again, Block, Calls, Kind, Outline, Outlines, Storages, made_again
from explorer.cost.sweep.passes import Flows, pattern_of
from explorer.cost.sweep.study import Cell, Study
from explorer.errors import PluginError, RefusedError

Numbers = list[Varied[int]]


@dataclass(frozen=True)
class Terms:
    """Numbers of `Need` by what they are made of: sums of activations, maxima of forward and backward, and the maximum
    of sums that layers make again."""

    forward: Numbers
    backward: Numbers
    activations: Numbers
    again: list[Numbers]

    @property
    def all(self) -> Numbers:
        """Every term, for a bound of what they may come to."""
        again = [number for layer in self.again for number in layer]
        return [*self.forward, *self.backward, *self.activations, *again]

    def need(self, number: Callable[[Varied[int]], Any], most: Callable[[Sequence[Any]], Any], cache: Any) -> Need:
        """The need at one place, or arrays of it at many. number: of one term; most: of several."""
        again = [sum(map(number, layer)) for layer in self.again]
        kept = sum(map(number, self.activations))
        forward, backward = (most(list(map(number, terms))) for terms in (self.forward, self.backward))
        return Need(forward, cache, kept, most(again) if again else 0, backward)


@dataclass(frozen=True)
class _Outlined:
    """The outlines of a pass: of the whole (None) and of the last layer of each block; failure: why there are none."""

    of: dict[Block | None, Outline] = field(default_factory=dict)
    failure: str | None = None


@dataclass(eq=False)
class Memories:
    """One workload. flows: of its pass, which no component changes. recompute: None outside of training."""

    study: Study
    flows: Varied[Flows]
    loads: Loads
    recompute: Recompute | None
    _needs: dict[Block | None, Terms] = field(default_factory=dict)

    @cached_property
    def failures(self) -> list[Varied[bool]]:
        """Where memory cannot be observed, or is no sum."""
        found = [Varied.map(lambda outlined: outlined.failure is not None, self._outlined)]
        for group, shares in self._shares.items():
            found.append(Varied.map(lambda share: share.failure is not None, shares))
            found.append(Varied.map(_disagree, self._calls(None, group), shares))
            if group.of:
                found.append(Varied.map(_disagree, self._calls(group.of, group), shares))
        return found

    def needs(self, block: Block | None) -> Terms:
        """What the whole pass needs, or the last layer of a block."""
        if block not in self._needs:
            self._needs[block] = self._of(block)
        return self._needs[block]

    def _of(self, block: Block | None) -> Terms:
        forward, backward, private = ([self._number(block, name)] for name in ("forward", "backward", "private"))
        found = Terms(forward, backward, private, [])
        for group, shares in self._shares.items():
            calls = self._calls(block, group)
            found.forward.append(Varied.map(_forward, calls, shares))
            if self.recompute is None:
                continue
            found.backward.append(Varied.map(_backward, calls, shares))
            found.activations.append(Varied.map(partial(_private, self._kept(group)), calls, shares))
        if self.recompute is None:
            return found
        storages = Varied.map(lambda one: one.of[block].storages if block in one.of else (), self._outlined)
        found.activations.extend(self._between(storages))
        found.again.extend(self._again(block))
        return found

    def _again(self, block: Block | None) -> list[Numbers]:
        """For each layer that is run again, as far as layers differ, what it makes again."""
        layers = Varied.map(lambda one: one.of[block].layers if block in one.of else (), self._outlined)
        most = max(map(len, layers.values))
        return [self._layer(Varied.map(partial(_at, place), layers)) for place in range(most)]

    def _layer(self, layer: Varied[Again]) -> Numbers:
        found = [Varied.map(lambda again: again.private, layer), *self._between(Varied.map(_storages, layer))]
        for group, shares in self._shares.items():
            if group.of:
                calls = Varied.map(partial(_calls_of, group), layer)
                found.append(Varied.map(partial(_made_again, self.recompute), calls, shares))
        return found

    def _between(self, storages: Varied[Storages]) -> Numbers:
        """Bytes of storages that are kept between calls, for each set of groups that decides it."""
        groups = {kind.groups for value in storages.values for kind, _ in value}
        found = []
        for some in sorted(groups, key=lambda some: sorted(map(str, some))):
            order = sorted(some, key=str)
            of_some = Varied.map(partial(_decided_by, some), storages)
            found.append(Varied.map(partial(_bytes, order), of_some, *(self._flags[group] for group in order)))
        return found

    def _number(self, block: Block | None, name: str) -> Varied[int]:
        return Varied.map(lambda one: getattr(one.of[block], name) if block in one.of else 0, self._outlined)

    def _calls(self, block: Block | None, group: Group) -> Varied[tuple[Calls, ...]]:
        return Varied.map(lambda one: one.of[block].groups.get(group, ()) if block in one.of else (), self._outlined)

    def _kept(self, group: Group) -> Callable[[Load], int]:
        """The private bytes of a call that stay until backward."""
        if group.of is None or self.recompute == "none":
            return lambda load: load.private.saved
        return (lambda load: load.private.products) if self.recompute == "selective" else (lambda load: 0)

    @cached_property
    def _outlined(self) -> Varied[_Outlined]:
        return Varied.map(self._outline, self.flows, key=id)

    def _outline(self, flows: Flows) -> _Outlined:
        found: dict[Block | None, Outline] = {}
        try:
            for flow in flows.flows:
                found |= Outlines(flow, self.loads, self.recompute).scopes()
        except (CannotRun, NotAlike) as error:
            return _Outlined(failure=str(error))
        return _Outlined(found)

    @cached_property
    def _shares(self) -> dict[Group, Varied[Share]]:
        return {group: self._share(group, cells) for group, cells in self.study.cells.items()}

    @cached_property
    def _flags(self) -> dict[Group, Varied[tuple[tuple[Key, Flags], ...]]]:
        return {group: Varied.map(lambda share: share.flags, shares) for group, shares in self._shares.items()}

    def _share(self, group: Group, cells: Varied[Cell]) -> Varied[Share]:
        if group == OUTSIDE:
            return Varied.map(self._outside, self.flows, cells)
        patterns = Varied.map(partial(pattern_of, group), self.flows, key=lambda pattern: pattern and pattern.key)
        return Varied.map(self._inside, patterns, cells)

    def _inside(self, pattern: Any, cell: Cell) -> Share:
        if pattern is None or not isinstance(cell, BranchCell | NormCell) or cell.shares:
            return NOTHING
        return _tried(lambda: self.loads.group(pattern, cell))

    def _outside(self, flows: Flows, cell: Cell) -> Share:
        if not flows.flows or flows.flows[0].block is not None or not isinstance(cell, OutsideCell):
            return NOTHING
        return _tried(lambda: self.loads.outside(flows.flows[0], cell))


def _tried(look: Callable[[], Share]) -> Share:
    """What a look tells, or why it tells nothing: such a row is not lost for its memory, it is counted alone."""
    try:
        with understood("a component") as trouble:
            try:
                return look()
            except (CannotRun, NotAlike) as error:
                return Share(failure=str(error))
        return Share(failure=trouble.reason)
    except (RefusedError, PluginError) as error:
        return Share(failure=str(error))


def _disagree(calls: Sequence[Calls], share: Share) -> bool:
    """Whether a component's results lie elsewhere in evaluation than where the flow takes them to lie."""
    return any(call.lies is not None and call.lies != load.lies for call, load in _loads(calls, share))


def _loads(calls: Sequence[Calls], share: Share) -> list[tuple[Calls, Load]]:
    loads = dict(share.loads)
    return [(call, loads[call.key]) for call in calls if call.key in loads]


def _forward(calls: Sequence[Calls], share: Share) -> int:
    pairs = _loads(calls, share)
    return max((call.held + load.forward for call, load in pairs if call.held is not None), default=0)


def _backward(calls: Sequence[Calls], share: Share) -> int:
    return max((call.waiting + load.backward for call, load in _loads(calls, share)), default=0)


def _private(kept: Callable[[Load], int], calls: Sequence[Calls], share: Share) -> int:
    inside = share.inside if calls else 0
    return inside + sum(call.times * kept(load) for call, load in _loads(calls, share))


def _decided_by(groups: frozenset[Group], storages: Storages) -> Storages:
    return tuple((kind, nbytes) for kind, nbytes in storages if kind.groups == groups)


def _bytes(groups: Sequence[Group], storages: Storages, *flags: Sequence[tuple[Key, Flags]]) -> int:
    of = dict(zip(groups, flags, strict=True))
    return sum(nbytes for kind, nbytes in storages if kind.counts(of))


_NO_LAYER = Again(0, (), ())


def _at(place: int, layers: Sequence[Again]) -> Again:
    return layers[place] if place < len(layers) else _NO_LAYER


def _storages(again: Again) -> tuple[tuple[Kind, int], ...]:
    return again.storages


def _calls_of(group: Group, again: Again) -> tuple[tuple[Key, int], ...]:
    return tuple((key, times) for of, key, times in again.calls if of == group)


def _made_again(recompute: Recompute | None, calls: Sequence[tuple[Key, int]], share: Share) -> int:
    loads = dict(share.loads)
    return sum(times * made_again(loads[key], recompute) for key, times in calls if key in loads)
