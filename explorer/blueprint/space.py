"""The product of a blueprint's axes as arrays: what stands in each field at each place.

Nothing here is made once for every place. A question about states (``Space.map``) is asked of each different state with
the fields that it reads, and the answer is an array over the axes that it depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from explorer.blueprint.fields import FIELDS
from explorer.blueprint.grid import Grid
from explorer.blueprint.partial import Aspect, Reads, exactly, merged, shortened, told_apart, value
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.resolve import plan_of
from explorer.blueprint.resolved import depends_on, holders, settings_in_force, text_of
from explorer.blueprint.state import Setting, State
from explorer.blueprint.varied import Varied

R = TypeVar("R")
InForce = tuple[Setting | None, ...]


@dataclass(frozen=True, eq=False)
class Space:
    """Every field at every place. fields: states that hold the one field only."""

    grid: Grid
    fields: Mapping[str, Varied[State]]

    def state(self, place: int) -> State:
        """All fields at one place."""
        return merged([column.at(place) for column in self.fields.values()])

    def plan(self, place: int) -> ModelPlan:
        """The plan of one place that nothing stands against."""
        return plan_of(self.state(place))

    def map(self, ask: Callable[[State], R], reads: Reads, *, key: Callable[[R], Hashable] | None = None) -> Varied[R]:
        """``ask`` of the state at each place, which holds no fields but those of ``reads``, and usually `layers`.

        Where two places differ in nothing that ``reads`` tells apart, ``ask`` sees the state of the first. key: what
        tells results apart; None: the result itself.
        """
        return Varied.map(lambda *parts: ask(merged(parts)), *self._parts(reads), key=key)

    def fixed(self, dim: int, index: int) -> Space:
        """The space where one axis has one option at every place."""
        return Space(self.grid, {name: column.fixed(dim, index) for name, column in self.fields.items()})

    @cached_property
    def in_force(self) -> Mapping[str, Varied[InForce]]:
        """Each field as all its holders have it (``settings_in_force``), equal values told from none."""
        return {name: self._in_force(name) for name in FIELDS}

    @cached_property
    def holders(self) -> Varied[tuple[Hashable, ...]]:
        """Which stacks and blocks there are."""
        return self.map(holders, {})

    def cells(self, names: Collection[str]) -> Varied[tuple[InForce, ...]]:
        """What some fields are in force, in the order of these names.

        One value for all places that have the same stacks and blocks with equal settings: what depends on no other
        field is the same there.
        """
        pairs = Varied.map(
            lambda *found: found,
            self.holders,
            *(self.in_force[name] for name in names),
            key=lambda found: (found[0], *map(_texts, found[1:])),
        )
        return Varied(tuple(found[1:] for found in pairs.values), pairs.codes, pairs.shape)

    def _parts(self, reads: Reads) -> Iterable[Varied[State]]:
        yield from (_seen(self.fields[name], aspect) for name, aspect in reads.items())
        if "layers" not in reads:
            yield self._usage

    @cached_property
    def _usage(self) -> Varied[State]:
        return Varied.map(shortened, self.fields["layers"], key=lambda state: told_apart(state, exactly))

    def _in_force(self, name: str) -> Varied[InForce]:
        reads = dict.fromkeys(sorted(depends_on(name)), value)
        return self.map(lambda state: settings_in_force(state, name), reads, key=_texts)


def _seen(column: Varied[State], aspect: Aspect) -> Varied[State]:
    """A column without the differences that an aspect does not tell apart."""
    if aspect is exactly:
        return column
    return Varied.map(lambda state: state, column, key=lambda state: told_apart(state, aspect))


def _texts(settings: InForce) -> Hashable:
    return tuple(map(text_of, settings))
