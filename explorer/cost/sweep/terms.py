"""What the components of one group add to the cost of a pass, for each flow and each component that may stand there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from explorer.cost.parts.observation import Observations
from explorer.cost.parts.part import Role
from explorer.cost.parts.parts import Parts
from explorer.cost.parts.relatives import Relatives
from explorer.cost.parts.tape import Entry, Joined
from explorer.cost.sweep.cells import BranchCell, NormCell, OutsideCell
from explorer.cost.sweep.flow import Answer, Ask, Asked, Flow, Group, Pattern
from explorer.registry.sites import Site


class Addable(Protocol):
    """What can be summed, and taken several times."""

    def __add__(self, other: Any) -> Any: ...
    def __mul__(self, times: int) -> Any: ...


V = TypeVar("V", bound=Addable)


@dataclass(frozen=True)
class Term(Generic[V]):
    """What a group adds to the whole pass, and to the last layer of its block, where it is of one.

    refused: why the component cannot be there. failure: why it cannot be observed.
    """

    whole: V
    layer: V
    refused: str | None = None
    failure: str | None = None


class Differs(Exception):
    """A component answers otherwise than the flow expects: it belongs to another flow."""

    def __init__(self, group: Group, key: object, answer: object):
        super().__init__(group)
        self.group, self.key, self.answer = group, key, answer


@dataclass(frozen=True)
class Look(Generic[V]):
    """Looks at components in flows.

    nothing: what no call costs. call: what one call costs, told `Flow.given`. join: what an addition of two gradients
    costs. outside: what the calls of embedding and head cost together; None: the sum of the calls.
    """

    observations: Observations
    nothing: V
    call: Callable[[Entry, tuple[Any, ...]], V]
    join: Callable[[Joined], V]
    outside: Callable[[Sequence[Entry], OutsideCell], V] | None = None

    def own(self, flow: Flow) -> dict[tuple[str, str] | None, V]:
        """What residuals and additions of gradients cost: in all (None), and in the last layer of each block."""
        sums: dict[tuple[str, str] | None, V] = {None: self.nothing}
        for entry in flow.own:
            self._add(sums, flow, entry.part.role, self.call(entry, flow.given))
        for entry in flow.entries:
            for join in entry.joins:
                self._add(sums, flow, entry.part.role, self.join(join))
        return sums

    def _add(self, sums: dict[tuple[str, str] | None, V], flow: Flow, role: Role, cost: V) -> None:
        sums[None] = sums[None] + cost
        block = role.stack, role.block
        if role.layer is not None and flow.last[block] == role.layer:
            sums[block] = sums.get(block, self.nothing) + cost

    def group(self, pattern: Pattern, cell: BranchCell | NormCell) -> Term[V]:
        """What a component costs in all calls that are asked of it.

        Raises: Differs.
        """
        return self.observations.sparingly(pattern.last, partial(self._group, pattern, cell))

    def _group(self, pattern: Pattern, cell: BranchCell | NormCell, relatives: Relatives | None) -> Term[V]:
        whole, layer = self.nothing, self.nothing
        for ask in pattern.asks:
            for entry, times, here in self._calls(pattern, cell, ask, relatives):
                answer = Answer.of(entry.observation, entry.grads)
                if answer != ask.answer:
                    raise Differs(pattern.group, cell.key, answer)
                cost = self.call(entry, pattern.given)
                whole, layer = whole + cost * times, layer + cost * here
        return Term(whole, layer)

    def _calls(
        self, pattern: Pattern, cell: BranchCell | NormCell, ask: Ask, relatives: Relatives | None
    ) -> Iterator[tuple[Entry, int, int]]:
        """Distinct calls, each with how often it is made, and how often in the last layer."""
        if isinstance(cell, NormCell) or "site" not in cell.chosen.picks:
            yield call(self.observations, pattern, cell, ask.asked), len(ask.sites), sum(ask.here)
            return
        for site, here in zip(ask.sites, ask.here, strict=True):
            yield call(self.observations, pattern, cell, ask.asked, site, relatives), 1, int(here)


def call(
    observations: Observations,
    pattern: Pattern,
    cell: BranchCell | NormCell,
    asked: Asked,
    site: Site | None = None,
    relatives: Relatives | None = None,
) -> Entry:
    """One call of a component as it is asked; site, relatives: for a component that is another at each site."""
    parts, step, group = Parts(observations.kind), asked.step, pattern.group
    if isinstance(cell, NormCell):
        assert cell.module is not None, "a norm that is none is not called"
        part = parts.norm(Role(group.stack, asked.role, group.block), cell.module, cell.chosen)
        inputs: Any = asked.x.make()
    else:
        role = Role(group.stack, "branch", group.block, group.sublayer, None if site is None else site.layer)
        branch = cell.branch if site is None else cell.at(site)
        part = parts.branch(role, branch, cell.chosen, cached=step.held is not None)
        inputs = asked.inputs(branch.wiring.names, pattern.vocab)
    seen, tensors = observations.of(part, inputs, step, relatives)
    return Entry(part, seen, tensors, [], asked.grads)
