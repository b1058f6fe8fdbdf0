"""The rows of a study: the product of its axes, counted before anything is built, equal rows merged."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from explorer.blueprint.axes import Axis, Baseline, Option
from explorer.blueprint.changes import Change
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.reading import Reader
from explorer.blueprint.resolve import resolve
from explorer.blueprint.resolved import resolved
from explorer.blueprint.skips import Rule
from explorer.blueprint.state import State, apply, unreached_problem
from explorer.errors import NOWHERE, BlueprintError, Problem, UsageError

DEFAULT_LIMIT = 100_000
_MOST_PROBLEMS = 50

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
        return ", ".join(self.choices.values()) or "as written"


@dataclass(frozen=True)
class Combinations:
    """All rows by their resolved form, the first axis slowest; ``by_index`` finds the row of each place in the product."""

    by_form: Mapping[str, Combination]
    by_index: Mapping[Index, str]
    axes: Sequence[Axis]
    baseline: Baseline

    @property
    def rows(self) -> tuple[Combination, ...]:
        return tuple(self.by_form.values())

    @property
    def product(self) -> int:
        return len(self.by_index)

    @property
    def merged(self) -> int:
        return self.product - len(self.by_form)

    def baselines(self, dead: Collection[str]) -> dict[str, str | None]:
        """The id of the row that each row is compared with; None where that row is among the dead."""
        if self.baseline.indexes is None:
            first = next((row.id for row in self.rows if row.id not in dead), None)
            return {row.id: first for row in self.rows}
        home: dict[str, Index] = {}
        for index, form in self.by_index.items():
            home.setdefault(form, index)
        partners = {row.id: self.by_form[self.by_index[self._partner(home[form])]] for form, row in self.by_form.items()}
        return {id: partner.id if partner.id not in dead else None for id, partner in partners.items()}

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

    Raises: UsageError above the limit; BlueprintError where an axis rests in every row, a value is of the wrong type, or
    no row is left.
    """
    check_limit(axes, limit)
    maker = _RowMaker(base, axes, skips, reader)
    rows: dict[str, Combination] = {}
    by_index: dict[Index, str] = {}
    for index in itertools.product(*(range(len(axis.options)) for axis in axes)):
        key, row = maker.row(index)
        by_index[index] = key
        rows.setdefault(key, row)
    maker.raise_problems()
    result = Combinations(rows, by_index, axes, baseline)
    if all(row.skipped for row in result.rows):
        raise BlueprintError([problem for row in result.rows for problem in row.problems] or [_all_skipped(result)])
    return result


def _all_skipped(result: Combinations) -> Problem:
    reasons = dict.fromkeys(row.skipped or "" for row in result.rows)
    return Problem(NOWHERE, "skip", f"every one of the {len(result.rows)} combinations is skipped", tuple(reasons)[:5])


@dataclass
class _RowMaker:
    """Makes rows, and notes which changes of which axes have reached anything so far."""

    base: State
    axes: Sequence[Axis]
    skips: Sequence[Rule]
    reader: Reader
    reached: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._digest = hashlib.sha256(_canonical(self.base).encode()).hexdigest()
        self._last: dict[int, tuple[Change, State]] = {}

    def row(self, index: Index) -> tuple[str, Combination]:
        options = [axis.options[i] for axis, i in zip(self.axes, index, strict=True)]
        changes = sorted((change for option in options for change in option.changes), key=lambda change: change.order)
        state, unreached = apply(self.base, changes, self.reader)
        if len(self.reader.problems) > _MOST_PROBLEMS:
            self.reader.raise_problems()
        lost = {id(change) for change in unreached}
        self._note(changes, lost, state)
        choices = {a.name: o.text for a, o in zip(self.axes, options, strict=True) if not _rests(o, lost)}
        return _canonical(state), self._combination(state, choices)

    def _note(self, changes: Sequence[Change], lost: set[int], state: State) -> None:
        self.reached |= {id(change) for change in changes if id(change) not in lost}
        for change in changes:
            if id(change) in lost:
                self._last.setdefault(id(change), (change, state))

    def _combination(self, state: State, choices: dict[str, str]) -> Combination:
        digests = "".join(f"{name}={choices[name]};" for name in sorted(choices))
        identity = hashlib.sha256((self._digest + digests).encode()).hexdigest()[:8]
        rule = next((rule for rule in self.skips if rule.holds(state, choices)), None)
        if rule is not None:
            return Combination(identity, choices, state, None, f"skip: {rule.text}")
        reader = Reader(self.reader.registry)
        plan = resolve(state, reader)
        reason = "; ".join(f"{p.path}: {p.message}" for p in dict.fromkeys(reader.problems))
        return Combination(identity, choices, state, plan, reason or None, tuple(reader.problems))

    def raise_problems(self) -> None:
        for axis in self.axes:
            resting = [o for o in axis.options if o.changes and not any(id(c) in self.reached for c in o.changes)]
            changing = [o for o in axis.options if o.changes]
            if axis.named or (changing and len(resting) == len(changing)):
                for change in {id(c): c for o in changing for c in o.changes if id(c) not in self.reached}.values():
                    change, state = self._last[id(change)]
                    unreached_problem(change, state, self.reader)
        self.reader.raise_problems()


def _rests(option: Option, lost: set[int]) -> bool:
    return bool(option.changes) and all(id(change) in lost for change in option.changes)


def _canonical(state: State) -> str:
    return json.dumps(resolved(state), sort_keys=True, separators=(",", ":"))
