"""Parts measured in place of combinations: each distinct piece of a block once, summed for every row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

from explorer.blueprint.load import load
from explorer.latency.piece_key import piece_key, pieces_of
from explorer.latency.raw import Lane
from explorer.latency.recipe import Recipe
from explorer.registry.registry import Registry
from explorer.study.auditing import spread
from explorer.study.comparisons import Comparison
from explorer.study.measured import Entry, Measured, untimed

Way = tuple[str, str]
"""An implementation and a regime."""

CHECKED = 4
"""Rows whose whole block is measured beside the pieces, to see how far the sums are off."""


@dataclass(frozen=True)
class Parts:
    """The pieces of the rows of a comparison, and the rows whose whole block is measured too."""

    comparison: Comparison
    registry: Registry

    @cached_property
    def of_row(self) -> Mapping[str, tuple[str, ...]]:
        """By the id of a row the keys of its pieces."""
        return {key: tuple(piece.key for piece in pieces) for key, pieces in self._pieces.items()}

    @cached_property
    def checked(self) -> Comparison:
        """Some rows, baselines first, whose whole blocks are in the same rounds."""
        places = self.comparison.places
        chosen = {places[index][0]["id"] for index in spread(CHECKED, len(places))}
        bases = self.comparison.baselines
        chosen |= {base for key, base in bases.items() if key in chosen and base is not None}
        return replace(self.comparison, places=tuple(place for place in places if place[0]["id"] in chosen))

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """What is measured: each distinct piece, and the whole blocks."""
        pieces = {piece.key: piece for pieces in self._pieces.values() for piece in pieces}
        return (*pieces.values(), *self.checked.recipes)

    @cached_property
    def _pieces(self) -> dict[str, tuple[Recipe, ...]]:
        rows = (recipe for recipe in self.comparison.recipes if recipe.clone_of is None)
        return {recipe.key: self._taken_apart(recipe) for recipe in rows}

    def _taken_apart(self, recipe: Recipe) -> tuple[Recipe, ...]:
        plan = load(recipe.document, registry=self.registry).plan()
        names = {piece: piece_key(plan, recipe.block, piece, recipe.settled) for piece in pieces_of(plan, recipe.block)}
        return tuple(replace(recipe, key=name, piece=piece, baseline=None) for piece, name in names.items())


@dataclass(frozen=True)
class Summed:
    """The sums of a comparison's pieces. measured: what was found of pieces and whole blocks."""

    parts: Parts
    measured: Measured

    def entries(self, row: str) -> list[Entry]:
        """An entry for each implementation and regime: the sums that there are, then why there is none in others.

        error: how far sums in that implementation and regime are from whole blocks at most, as a share.
        """
        sums = {way: self._sum(self.parts.of_row[row], *way) for way in self._ways}
        told = [{**entry, "error": self._largest_error(way)} for way, entry in sums.items() if entry is not None]
        lost = [self._untimed(row, *way) for way, entry in sums.items() if entry is None]
        lost += [self._untimed(row, impl, None) for impl in self._never_ran]
        return [*told, *lost] or [self._untimed(row, None, None)]

    @cached_property
    def errors(self) -> dict[Way, dict[str, float]]:
        """By implementation and regime, for each row whose whole block was timed: (sum - whole) / whole."""
        found: dict[Way, dict[str, float]] = {}
        for row, _ in self.parts.checked.places:
            for way in self._ways:
                entry = self._sum(self.parts.of_row[row["id"]], *way)
                whole = self.measured.timings.get(Lane(row["id"], *way))
                if entry is not None and whole is not None:
                    found.setdefault(way, {})[row["id"]] = entry["median_ms"] / whole.median_ms - 1
        return found

    def to_dict(self) -> dict[str, Any]:
        """How many pieces there are, and how far their sums are from the whole blocks that were measured.

        checked: rows with such an error. lanes: the same for each implementation and regime.
        """
        errors = [error for found in self.errors.values() for error in found.values()]
        return {
            "block": self.parts.comparison.block,
            "pieces": len(self._pieces),
            "checked": len({row for found in self.errors.values() for row in found}),
            **_summary(errors),
            "errors": errors,
            "lanes": [
                {"impl": impl, "regime": regime, "checked": len(found), **_summary(found.values())}
                for (impl, regime), found in self.errors.items()
            ],
        }

    def _largest_error(self, way: Way) -> float | None:
        return _summary(self.errors.get(way, {}).values())["largest_error"]

    @cached_property
    def _pieces(self) -> set[str]:
        return {key for keys in self.parts.of_row.values() for key in keys}

    @cached_property
    def _ways(self) -> list[Way]:
        """Implementations and regimes in which a piece was timed."""
        timed = (lane for lane in self.measured.timings if lane.candidate in self._pieces)
        return list(dict.fromkeys((lane.impl, lane.regime) for lane in timed))

    @cached_property
    def _never_ran(self) -> list[str]:
        """Implementations that pieces failed in, and none was timed in."""
        failed = dict.fromkeys(one.impl for one in self.measured.failed if one.candidate in self._pieces)
        return [impl for impl in failed if impl is not None and impl not in dict(self._ways)]

    def _sum(self, keys: Sequence[str], impl: str, regime: str) -> Entry | None:
        times = [self.measured.timings.get(Lane(key, impl, regime)) for key in keys]
        if None in times:
            return None
        known = [time for time in times if time is not None]
        return {
            **unsummed("", impl, regime, known[0].device),
            "median_ms": sum(time.median_ms for time in known),
            "rounds": min(time.rounds for time in known),
            "processes": known[0].processes,
            "clean": min(time.clean for time in known),
            "cache": " + ".join(dict.fromkeys(time.cache for time in known)),
            "copies": max(time.copies for time in known),
            "notes": list(dict.fromkeys(note for time in known for note in time.notes)),
            "pieces": {key: time.median_ms for key, time in zip(keys, known, strict=True)},
            "reason": None,
        }

    def _untimed(self, row: str, impl: str | None, regime: str | None) -> Entry:
        """Which pieces were not timed, and why."""
        timed = {lane.candidate for lane in self.measured.timings if (lane.impl, lane.regime) == (impl, regime)}
        missing = {key: self.measured.failure(key, impl, regime) for key in self.parts.of_row[row] if key not in timed}
        told = "; ".join(f"{key}: {reason}" for key, reason in missing.items() if reason)
        return unsummed(told or f"not timed: {', '.join(missing)}", impl, regime)


def unsummed(reason: str, impl: str | None = None, regime: str | None = None, device: str | None = None) -> Entry:
    """As `untimed`, of a sum of parts."""
    return {**untimed(reason, impl, regime, device), "of": "parts"}


def _summary(errors: Collection[float]) -> dict[str, float | None]:
    distances = list(map(abs, errors))
    return {"median_error": median(distances) if distances else None, "largest_error": max(distances, default=None)}
