"""All rows of a study counted at once; each row, or a table of all, is made when it is asked for."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.combinations import Combination, Combinations
from explorer.cost.costs import Counted
from explorer.cost.counting import Workbench, count
from explorer.cost.sweep.results import Results
from explorer.cost.sweep.sweep import Sweep
from explorer.errors import PluginError, RefusedError
from explorer.study.rows import counted_row, skipped_row
from explorer.study.warned import leaks_of

OnProgress = Callable[[str, int, int], None]


@dataclass(eq=False)
class Swept:
    """The rows of a blueprint. apart: those that had to be counted one by one, by place."""

    blueprint: Blueprint
    combinations: Combinations
    sweep: Sweep
    apart: dict[int, Counted] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @cached_property
    def results(self) -> Results:
        return Results(self.sweep)

    @cached_property
    def dead(self) -> NDArray[np.bool_]:
        """Whether each row is skipped, by a rule or because it cannot be built or run."""
        places = self.combinations.places
        refused = self.sweep.reasons.codes[places] >= 0
        refused |= np.isin(places, np.fromiter(self.refused, np.intp, len(self.refused)))
        return self.combinations.skipped | refused

    def row(self, index: int) -> dict[str, Any]:
        """One row as in the JSON of a result, without its baseline."""
        row = self.combinations.rows[index]
        reason = self.reason(row)
        return (
            skipped_row(row, reason)
            if reason is not None
            else counted_row(row, self.counted(row, index), self._said(row))
        )

    @cached_property
    def reason_codes(self) -> tuple[list[str], NDArray[np.int32]]:
        """The reasons, and the index of each row's; -1 where the row lives."""
        codes, texts = self.combinations.reasons()
        swept = self.sweep.reasons.codes[self.combinations.places]
        found = np.where(codes >= 0, codes, np.where(swept >= 0, swept + len(texts), -1)).astype(np.int32)
        texts = [*texts, *self.sweep.reasons.texts]
        for place, reason in self.refused.items():
            found[self.combinations.places == place] = len(texts)
            texts.append(reason)
        return texts, found

    def counted(self, row: Combination, index: int) -> Counted:
        """What a row that lives costs."""
        return self.apart[row.place] if row.place in self.apart else self.results.counted(row.place)

    def reason(self, row: Combination) -> str | None:
        """Why a row is skipped."""
        if row.skipped is not None:
            return row.skipped
        code = self.sweep.reasons.codes[row.place]
        return self.refused.get(row.place) if code < 0 else self.sweep.reasons.texts[code]

    def _said(self, row: Combination) -> list[str]:
        assert row.plan is not None, row
        return list(dict.fromkeys([*self.results.warnings(row.place), *leaks_of(row.plan)]))


def sweep_rows(
    blueprint: Blueprint, combinations: Combinations, tokens: int | None, bench: Workbench, on_progress: OnProgress
) -> Swept:
    """Count all rows of a blueprint.

    Raises: RefusedError or PluginError where no row is left: that of the first.
    """
    with _collector_off():
        sweep = Sweep(combinations, blueprint.workloads, tokens, bench)
    swept = Swept(blueprint, combinations, sweep)
    places = combinations.places[~combinations.skipped]
    alone = [int(place) for place in places[sweep.apart[places]] if sweep.reasons.codes[place] < 0]
    for done, place in enumerate(alone):
        on_progress("counting rows whose components share something", done, len(alone))
        _count_alone(swept, place)
    if swept.dead.all():
        _count_first(swept, int(places[0]))
    return swept


@contextmanager
def _collector_off() -> Iterator[None]:
    """Nearly all that a sweep makes it keeps: looking for garbage among it would cost a tenth of the time."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _count_alone(swept: Swept, place: int) -> None:
    sweep = swept.sweep
    plan = swept.combinations.space.plan(place)
    try:
        swept.apart[place] = count(plan, sweep.workloads, sweep.default_tokens, sweep.bench)
    except (RefusedError, PluginError) as error:
        swept.refused[place] = error.message if isinstance(error, RefusedError) else str(error)


def _count_first(swept: Swept, place: int) -> None:
    """Raises: what stands against the first row that no rule skips."""
    count(swept.combinations.space.plan(place), swept.sweep.workloads, swept.sweep.default_tokens)
