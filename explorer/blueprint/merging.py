"""Places that resolve alike are one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.blueprint.grid import Grid
from explorer.blueprint.varied import Mask, Places, Varied, joint


@dataclass(frozen=True, eq=False)
class Merged:
    """Which places are one row. homes: the first place of each row. row_of: the row of each place.

    places: the place that stands for each row. That is its first, but where a skip rule leaves that one out the first
    that is kept: a rule may name an option, and the same model under another name is still wanted.
    """

    places: Places
    homes: Places
    row_of: Places


def merge(grid: Grid, parts: Iterable[Varied[Any]], ruled: Mask, faulty: Mask) -> Merged:
    """Rows of the places at which all of the parts are the same.

    ruled, faulty: for each place, whether a skip rule holds, and whether something stands against a plan.
    """
    first = first_alike(grid, parts)
    homes = np.flatnonzero(first == np.arange(grid.size))
    row_of = np.empty(grid.size, np.intp)
    row_of[homes] = np.arange(len(homes))
    row_of = row_of[first]
    places = homes
    if ruled[homes].any():
        other = np.flatnonzero(ruled[first] & ~(ruled | faulty))[::-1]
        places = homes.copy()
        places[row_of[other]] = other  # of several the last assignment stays: the first place
    return Merged(places, homes, row_of)


def first_alike(grid: Grid, parts: Iterable[Varied[Any]]) -> Places:
    """For each place the first one at which all of the parts have the same values.

    Axes that no part depends on together are looked at apart: the first of all places that are alike has, along each
    group of axes, the first indices that are alike there.
    """
    total = np.zeros((1,) * len(grid.shape), np.intp)
    for group in _connected([part for part in parts if not part.is_constant]):
        numbers, firsts = joint(group)
        index = np.unravel_index(firsts, numbers.shape)
        offsets = sum(i * stride for i, stride in zip(index, grid.strides, strict=True))
        total = total + np.asarray(offsets, np.intp)[numbers]
    return np.broadcast_to(total, grid.shape).reshape(-1)


def _connected(parts: Sequence[Varied[Any]]) -> Iterator[list[Varied[Any]]]:
    """The parts in groups; those that depend on one axis are in one group."""
    left = list(parts)
    while left:
        group: list[Varied[Any]] = []
        found = [left[0]]
        while found:
            group += found
            dims = {dim for part in found for dim in part.dims}
            left = [part for part in left if part not in found]
            found = [part for part in left if not dims.isdisjoint(part.dims)]
        yield group
