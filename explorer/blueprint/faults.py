"""Which places of a study are left out: by a skip rule, or by what stands against a plan there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.axes import Axis
from explorer.blueprint.partial import value
from explorer.blueprint.reading import Reader, distinct
from explorer.blueprint.resolve import PHASES, Check, check
from explorer.blueprint.skips import Choice, Condition, Rule, cells_in_use
from explorer.blueprint.space import Space
from explorer.blueprint.state import State
from explorer.blueprint.varied import Codes, Places, Varied, ranked
from explorer.errors import Problem

Problems = tuple[Problem, ...]


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What leaves places out.

    held: the index of the first rule that holds, -1 where none does. found: for each check that finds something what
    that is. faulty: where one of them does.
    """

    rules: Sequence[Rule]
    held: Varied[int]
    found: Sequence[Varied[Problems]]
    faulty: Varied[bool]
    reader: Reader

    @property
    def ruled(self) -> Varied[bool]:
        """Where a rule holds."""
        return Varied.map(lambda index: index >= 0, self.held)

    def reason(self, space: Space, place: int) -> tuple[str | None, Problems]:
        """Why a place is left out, and the problems where they are the reason; a rule comes before them."""
        rule = self.held.at(place)
        if rule >= 0:
            return f"skip: {self.rules[rule].text}", ()
        if not self.faulty.at(place):
            return None, ()
        reader = self.reader.afresh()
        check(space.state(place), reader)
        problems = tuple(distinct(reader.problems))
        return "; ".join(f"{p.path}: {p.message}" for p in problems), problems

    def alike(self, places: Places) -> tuple[Codes, Places]:
        """Numbers places so that those of one number have one reason, and says where each number comes first."""
        held = self.held.flat(places)
        free = np.asarray(self.held.values)[held] < 0
        numbers, firsts = ranked(held, len(self.held.values))
        for found in self.found:
            codes = np.where(free, found.flat(places), 0)
            keys = numbers.astype(np.int64) * len(found.values) + codes
            numbers, firsts = ranked(keys, len(firsts) * len(found.values))
        return numbers, firsts


def left_out(space: Space, rules: Sequence[Rule], rests: Mapping[str, Varied[bool]], reader: Reader) -> LeftOut:
    """The places that rules or problems leave out."""
    found = [problems for checks in PHASES for each in checks if any((problems := _found(space, each, reader)).values)]
    somewhere: NDArray[Any] = np.zeros((1,) * len(space.grid.shape), np.bool_)
    for problems in found:
        somewhere = somewhere | Varied.map(bool, problems).array()
    faulty = Varied.coded((False, True), somewhere.astype(np.int32), space.grid.shape)
    return LeftOut(rules, _first_held(space, rules, rests), found, faulty, reader)


def _found(space: Space, one: Check, reader: Reader) -> Varied[Problems]:
    def ask(state: State) -> Problems:
        fresh = reader.afresh()
        check(state, fresh, ((one,),))
        return tuple(fresh.problems)

    return space.map(ask, one.reads)


def _first_held(space: Space, rules: Sequence[Rule], rests: Mapping[str, Varied[bool]]) -> Varied[int]:
    first: NDArray[Any] = np.zeros((1,) * len(space.grid.shape), np.int32)
    for index, rule in reversed(list(enumerate(rules))):
        first = np.where(_holds(space, rule, rests).array(), index + 1, first)
    return Varied.coded(range(-1, len(rules)), first, space.grid.shape)


def _holds(space: Space, rule: Rule, rests: Mapping[str, Varied[bool]]) -> Varied[bool]:
    """Whether all choices of a rule are made, and all its conditions hold in one block."""
    axes = {axis.name: axis for axis in space.grid.axes}
    chosen = [_is_chosen(space, axes[choice.axis], choice, rests[choice.axis]) for choice in rule.choices]
    cells = [space.map(cells_in_use, {}), *(_cells(space, condition) for condition in rule.values)]
    somewhere = Varied.map(lambda *sets: bool(frozenset.intersection(*sets)), *cells)
    return Varied.map(lambda *each: all(each), somewhere, *chosen)


def _is_chosen(space: Space, axis: Axis, choice: Choice, rests: Varied[bool]) -> Varied[bool]:
    """An axis that rests has no option."""
    has = space.grid.along(axis, lambda option: option.text == choice.option)
    return Varied.map(lambda here, resting: here and not resting, has, rests)


def _cells(space: Space, condition: Condition) -> Varied[frozenset[tuple[str, str]]]:
    return space.map(condition.cells, dict.fromkeys(sorted(condition.reads), value))
