"""The rows of a study: the product of its axes, counted before anything is built, equal rows merged."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.axes import Axis, spoken
from explorer.blueprint.baseline import Baseline
from explorer.blueprint.columns import MOST_PROBLEMS, columns_of
from explorer.blueprint.faults import LeftOut, Problems, left_out
from explorer.blueprint.grid import Grid
from explorer.blueprint.identity import as_text, lanes
from explorer.blueprint.merging import Merged, merge
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.reading import Reader, in_order
from explorer.blueprint.resolve import plan_of
from explorer.blueprint.resting import note_unreached, resting
from explorer.blueprint.skips import Rule
from explorer.blueprint.space import Space
from explorer.blueprint.state import State
from explorer.blueprint.varied import Mask, Places, Varied, marked
from explorer.blueprint.writing import Writer
from explorer.errors import NOWHERE, BlueprintError, Problem, UsageError

DEFAULT_LIMIT = 100_000


@dataclass(frozen=True)
class Combination:
    """One row: the choices that made it, and the reason why it is skipped, with the problems where they are that."""

    id: str
    choices: Mapping[str, str]
    skipped: str | None
    problems: Problems
    place: int
    space: Space = field(repr=False)

    @cached_property
    def state(self) -> State:
        return self.space.state(self.place)

    @cached_property
    def plan(self) -> ModelPlan | None:
        """None where the row is skipped."""
        return plan_of(self.state) if self.skipped is None else None

    @property
    def label(self) -> str:
        return ", ".join(spoken(axis, text) for axis, text in self.choices.items()) or "as written"


@dataclass(frozen=True, eq=False)
class Combinations:
    """All rows, the first axis slowest, as arrays; a row itself is made when it is asked for.

    A *place* is the flat index of one option of each axis; a row is an index into ``places``. base: the blueprint
    without axes. rests: where each axis rests.
    """

    base: State
    space: Space
    rests: Mapping[str, Varied[bool]]
    left_out: LeftOut
    merging: Merged
    baseline: Baseline

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.space.grid.axes

    @property
    def rows(self) -> Rows:
        return Rows(self)

    @property
    def places(self) -> Places:
        """The place that stands for each row."""
        return self.merging.places

    @property
    def product(self) -> int:
        return self.space.grid.size

    @property
    def merged(self) -> int:
        """How many places are equal to that of another row."""
        return self.product - len(self.places)

    @cached_property
    def skipped(self) -> Mask:
        """Whether each row is skipped."""
        return (self.left_out.ruled.everywhere() | self.left_out.faulty.everywhere())[self.places]

    def ids(self) -> NDArray[np.str_]:
        """The id of each row: the fewest hexadecimal digits, 8 or more, that tell all apart (see ``identity``)."""
        return self._ids

    @cached_property
    def _ids(self) -> NDArray[np.str_]:
        return as_text(lanes(self.base, self.space.grid, self.rests, self.places))

    def options(self, axis: Axis) -> NDArray[np.int32]:
        """The index of each row's option of an axis, -1 where the axis rests."""
        rests = self.rests[axis.name].everywhere()[self.places]
        return np.where(rests, np.int32(-1), self.space.grid.options_at(axis, self.places))

    def reasons(self) -> tuple[NDArray[np.int32], list[str]]:
        """Why rows are skipped: the index of each row's reason, -1 where it is not, and the different reasons."""
        skipped = np.flatnonzero(self.skipped)
        numbers, firsts = self.left_out.alike(self.places[skipped])
        told = [self.left_out.reason(self.space, int(place))[0] or "" for place in self.places[skipped[firsts]]]
        texts: dict[str, int] = {}
        codes = [texts.setdefault(text, len(texts)) for text in told]
        result = np.full(len(self.places), -1, np.int32)
        result[skipped] = np.array(codes, np.int32)[numbers]
        return result, list(texts)

    def representatives(self, varied: Varied[Any]) -> list[int | None]:
        """For each value the first place of a row that has it and is not skipped; None where no such row has it."""
        return varied.firsts(self._kept)

    @cached_property
    def _kept(self) -> Places:
        return marked(self.places[~self.skipped], self.product)

    def partners(self, dead: Mask) -> NDArray[np.intp]:
        """The row that each row is compared with; -1 where that one is dead."""
        if self.baseline.indexes is None:
            alive = np.flatnonzero(~dead)[:1]
            return np.full(len(self.places), alive[0] if len(alive) else -1)
        places = self.merging.homes
        for axis in self.axes:
            if axis.name in self.baseline.indexes:
                places = self.space.grid.with_option(places, axis, self.baseline.indexes[axis.name])
        partners = self.merging.row_of[places]
        return np.where(dead[partners], -1, partners)

    def baselines(self, dead: Collection[str]) -> dict[str, str | None]:
        """The id of the row that each row is compared with; None where that row is among the dead."""
        ids: list[str] = self.ids().tolist()
        partners = self.partners(np.array([id in dead for id in ids], np.bool_)).tolist()
        return {id: None if partner < 0 else ids[partner] for id, partner in zip(ids, partners, strict=True)}


class Rows(Sequence[Combination]):
    """The rows of a study, each made when it is asked for."""

    def __init__(self, study: Combinations):
        self._study = study

    def __len__(self) -> int:
        return len(self._study.places)

    @overload
    def __getitem__(self, index: int) -> Combination: ...
    @overload
    def __getitem__(self, index: slice) -> list[Combination]: ...
    def __getitem__(self, index: int | slice) -> Combination | list[Combination]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        study = self._study
        place = int(study.places[index])
        skipped, problems = study.left_out.reason(study.space, place)
        return Combination(str(study.ids()[index]), dict(self._choices(place)), skipped, problems, place, study.space)

    def _choices(self, place: int) -> Iterator[tuple[str, str]]:
        grid = self._study.space.grid
        for axis in grid.axes:
            if not self._study.rests[axis.name].at(place):
                yield axis.name, axis.options[grid.option_at(axis, place)].text


def count(axes: Sequence[Axis]) -> int:
    """How many combinations the axes make, resting and equal ones included."""
    return math.prod(len(axis.options) for axis in axes)


def check_limit(axes: Sequence[Axis], limit: int) -> None:
    """Raises: UsageError where the product is above the limit."""
    product = count(axes)
    if product > limit:
        lengths = " x ".join(str(len(axis.options)) for axis in axes)
        raise UsageError(
            f"{product:,} combinations ({lengths}) are more than the limit of {limit:,}: "
            f"shorten an axis, or raise the limit with --limit {product}"
        )


def combine(
    base: State, axes: Sequence[Axis], skips: Sequence[Rule], baseline: Baseline, reader: Reader, limit: int
) -> Combinations:
    """Every row of the product.

    Raises: UsageError above the limit; BlueprintError where an axis rests in every row, a value is of the wrong type,
    or no row is left.
    """
    check_limit(axes, limit)
    grid, writer = Grid(tuple(axes)), Writer(reader)
    columns = columns_of(base, grid, writer)
    space = Space(grid, columns.fields)
    rests = resting(space, columns, writer)
    note_unreached(space, columns.reached, reader)
    reader.raise_problems()
    out = left_out(space, skips, rests, reader)
    merged = merge(grid, (space.holders, *space.in_force.values()), out.ruled.everywhere(), out.faulty.everywhere())
    result = Combinations(base, space, rests, out, merged, baseline)
    if result.skipped.all():
        raise BlueprintError(_why_none_is_left(result))
    return result


def _why_none_is_left(result: Combinations) -> Sequence[Problem]:
    """The problems of all rows, looked for in the first row with each; without any, the rules."""
    out, rows = result.left_out, result.rows
    ruled = out.ruled.everywhere()[result.places]
    candidates = marked(result.places[~ruled], result.product)
    places = {place for found in out.found for place in found.firsts(candidates) if place is not None}
    at = np.searchsorted(result.places, sorted(places))
    problems = in_order([problem for row in at for problem in rows[row].problems])
    if problems:
        return problems[:MOST_PROBLEMS]
    _, reasons = result.reasons()
    where = out.rules[0].where if out.rules else NOWHERE
    message = f"no combination is left: {len(rows)} of {len(rows)} are skipped"
    return [Problem(where, "skip", message, tuple(reasons[:5]))]
