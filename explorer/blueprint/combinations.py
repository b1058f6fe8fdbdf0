"""The rows of a study: the product of its axes, counted before anything is built, equal rows merged."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from explorer.blueprint.axes import Axis, Option, spoken
from explorer.blueprint.baseline import Baseline
from explorer.blueprint.changes import Change
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.reading import Reader, distinct, in_order
from explorer.blueprint.resolve import resolve
from explorer.blueprint.resolved import form
from explorer.blueprint.skips import Rule
from explorer.blueprint.state import State
from explorer.blueprint.tree import plain
from explorer.blueprint.writing import Writer, unreached_problem
from explorer.errors import NOWHERE, BlueprintError, Problem, UsageError

DEFAULT_LIMIT = 100_000
_MOST_PROBLEMS = 50
_ID_LENGTH = 8

Index = tuple[int, ...]


@dataclass(frozen=True)
class Combination:
    """One row: the choices that made it, and its plan, or the reason why it is skipped."""

    id: str
    choices: Mapping[str, str]
    state: State
    plan: ModelPlan | None
    skipped: str | None
    problems: tuple[Problem, ...] = ()

    @property
    def label(self) -> str:
        return ", ".join(spoken(axis, text) for axis, text in self.choices.items()) or "as written"


@dataclass(frozen=True)
class Combinations:
    """All rows, the first axis slowest; ``row_at`` finds the row of each place in the product."""

    rows: tuple[Combination, ...]
    row_at: Mapping[Index, int]
    axes: Sequence[Axis]
    baseline: Baseline

    @property
    def product(self) -> int:
        return len(self.row_at)

    @property
    def merged(self) -> int:
        return self.product - len(self.rows)

    def baselines(self, dead: Collection[str]) -> dict[str, str | None]:
        """The id of the row that each row is compared with; None where that row is among the dead."""
        if self.baseline.indexes is None:
            first = next((row.id for row in self.rows if row.id not in dead), None)
            return {row.id: first for row in self.rows}
        ids = [row.id for row in self.rows]
        partners = {ids[at]: ids[self.row_at[self._partner(home)]] for at, home in self._homes.items()}
        return {id: partner if partner not in dead else None for id, partner in partners.items()}

    @cached_property
    def _homes(self) -> dict[int, Index]:
        """The first place in the product of each row."""
        homes: dict[int, Index] = {}
        for index, at in self.row_at.items():
            homes.setdefault(at, index)
        return homes

    def _partner(self, index: Index) -> Index:
        """The place with the baseline's choice on each axis it names, the row's own on the others."""
        fixed = self.baseline.indexes or {}
        return tuple(fixed.get(axis.name, place) for axis, place in zip(self.axes, index, strict=True))


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
    maker = _RowMaker(base, axes, skips, reader)
    places: dict[tuple[Hashable, ...], int] = {}
    rows: list[Combination] = []
    row_at: dict[Index, int] = {}
    for index in itertools.product(*(range(len(axis.options)) for axis in axes)):
        draft = maker.draft(index)
        at = row_at[index] = places.setdefault(draft.form, len(rows))
        if at == len(rows):
            rows.append(maker.row(draft))
        elif rows[at].skipped and not rows[at].problems:
            # A rule may skip an option's name; the same model under another name is still wanted.
            rows[at] = row if (row := maker.row(draft)).skipped is None else rows[at]
    maker.raise_problems()
    result = Combinations(_with_own_ids(rows), row_at, axes, baseline)
    if all(row.skipped for row in result.rows):
        raise BlueprintError(_reasons(result, skips))
    return result


def _with_own_ids(rows: Sequence[Combination]) -> tuple[Combination, ...]:
    """The rows with the shortest ids, of 8 digits or more, that tell them all apart."""
    unique = (n for n in range(_ID_LENGTH, 65) if len({row.id[:n] for row in rows}) == len(rows))
    length = next(unique, None)
    assert length is not None, "two rows with the same choices"
    return tuple(replace(row, id=row.id[:length]) for row in rows)


def _reasons(result: Combinations, skips: Sequence[Rule]) -> Sequence[Problem]:
    found = in_order([problem for row in result.rows for problem in row.problems])
    if found:
        return found[:_MOST_PROBLEMS]
    reasons = dict.fromkeys(row.skipped or "" for row in result.rows)
    where = skips[0].where if skips else NOWHERE
    message = f"no combination is left: {len(result.rows)} of {len(result.rows)} are skipped"
    return [Problem(where, "skip", message, tuple(reasons)[:5])]


@dataclass
class _Step:
    """A state on the way to rows, what was lost so far, and the steps that follow from it."""

    state: State
    lost: tuple[Change, ...] = ()
    following: dict[int, _Step] = field(default_factory=dict)

    def after(self, change: Change, writer: Writer) -> _Step:
        """The state after one more change; rows that begin alike share it."""
        step = self.following.get(id(change))
        if step is None:
            state = writer.one(self.state, change)
            step = _Step(self.state, (*self.lost, change)) if state is None else _Step(state, self.lost)
            self.following[id(change)] = step
        return step


@dataclass(frozen=True)
class _Draft:
    """A place in the product with its state."""

    options: Sequence[Option]
    state: State
    lost: frozenset[int]
    form: tuple[Hashable, ...]


class _RowMaker:
    """Makes rows, and notes which changes of which axes have reached anything so far."""

    def __init__(self, base: State, axes: Sequence[Axis], skips: Sequence[Rule], reader: Reader):
        self.axes, self.skips, self.reader = axes, skips, reader
        self._writer = Writer(reader)
        splits = any(not change.path and change.scope.block is None for axis in axes for change in axis.changes)
        self._start = _Step(base if splits else base.pruned())
        self._digest = hashlib.sha256(repr(form(base)).encode()).hexdigest()
        self._reached: set[int] = set()
        self._lost: dict[int, State] = {}

    def draft(self, index: Index) -> _Draft:
        """The state of a place in the product."""
        options = [axis.options[i] for axis, i in zip(self.axes, index, strict=True)]
        changes = sorted((change for option in options for change in option.changes), key=lambda change: change.order)
        step = self._start
        for change in changes:
            step = step.after(change, self._writer)
        if len(self.reader.problems) > _MOST_PROBLEMS:
            self.reader.raise_problems()
        lost = frozenset(id(change) for change in step.lost)
        self._reached.update(id(change) for change in changes if id(change) not in lost)
        for change in step.lost:
            self._lost.setdefault(id(change), step.state)
        return _Draft(options, step.state, lost, form(step.state))

    def row(self, draft: _Draft) -> Combination:
        state = draft.state
        chosen = {a.name: o for a, o in zip(self.axes, draft.options, strict=True) if not self._rests(a, o, draft)}
        choices = {name: option.text for name, option in chosen.items()}
        identity = self._identity(chosen)
        if self.reader.problems:  # a value of some row cannot be read: no row will count
            return Combination(identity, choices, state, None, "cannot be read")
        rule = next((rule for rule in self.skips if rule.holds(state, choices)), None)
        if rule is not None:
            return Combination(identity, choices, state, None, f"skip: {rule.text}")
        reader = self.reader.afresh()
        plan = resolve(state, reader)
        problems = tuple(distinct(reader.problems))
        reason = "; ".join(f"{p.path}: {p.message}" for p in problems)
        return Combination(identity, choices, state, plan, reason or None, problems)

    def _identity(self, chosen: Mapping[str, Option]) -> str:
        options = [[name, chosen[name].text, plain(chosen[name].node)] for name in sorted(chosen)]
        text = json.dumps(options, sort_keys=True)
        return hashlib.sha256((self._digest + text).encode()).hexdigest()

    def _rests(self, axis: Axis, option: Option, draft: _Draft) -> bool:
        """Whether nothing that the axis could set is there in this row."""
        if option.changes:
            return all(id(change) in draft.lost for change in option.changes)
        return bool(axis.changes) and not any(self._writer.one(draft.state, change) for change in axis.changes)

    def raise_problems(self) -> None:
        """Raises: BlueprintError where a value cannot be read or an axis reaches nothing in any row."""
        for axis in self.axes:
            for change in self._unreached(axis):
                unreached_problem(change, self._lost[id(change)], self.reader)
        self.reader.raise_problems()

    def _unreached(self, axis: Axis) -> Iterator[Change]:
        """Of an axis of values one change, where all rest everywhere; of named options each that never reaches."""
        resting = [change for change in axis.changes if id(change) not in self._reached]
        if axis.named:
            yield from resting
        elif axis.changes and len(resting) == len(axis.changes):
            yield resting[0]
