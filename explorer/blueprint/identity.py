"""Ids of rows: hashes of what was chosen, made for all rows at once.

An id is 128 bits, two lanes of 64. Each lane h begins with 64 bits of the sha256 of the blueprint without its axes. For
each axis that does not rest in the row, in the order of their names, h = mix(h + d) modulo 2^64: d are 64 bits of the
sha256 of the axis' name and its option, mix is the finaliser of splitmix64 (Steele, Lea and Flood 2014), a bijection.
What is shown are as many hexadecimal digits as tell all rows apart, 8 or more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.axes import Axis, Option
from explorer.blueprint.grid import Grid
from explorer.blueprint.resolved import form
from explorer.blueprint.state import State
from explorer.blueprint.tree import plain
from explorer.blueprint.varied import Places, Varied

Lanes = NDArray[np.uint64]

FEWEST_DIGITS = 8
_OF_LANE = 16


def lanes(base: State, grid: Grid, rests: Mapping[str, Varied[bool]], places: Places) -> Lanes:
    """The two lanes of the id of each place, (2, places)."""
    ones = (1,) * len(grid.shape)
    hashed = _digest(repr(form(base))).reshape(2, *ones)
    for axis in sorted(grid.axes, key=lambda axis: axis.name):
        options = np.stack([_option_digest(axis, option) for option in axis.options], axis=1)
        along = [len(axis.options) if dim == grid.dims.get(axis.name) else 1 for dim in range(len(grid.shape))]
        mixed = _mix(hashed + options.reshape(2, *along))
        hashed = np.where(rests[axis.name].array(), hashed, mixed)
    return np.broadcast_to(hashed, (2, *grid.shape)).reshape(2, -1)[:, places]


def _option_digest(axis: Axis, option: Option) -> Lanes:
    return _digest(json.dumps([axis.name, option.text, plain(option.node)], sort_keys=True))


def _digest(text: str) -> Lanes:
    return np.frombuffer(hashlib.sha256(text.encode()).digest()[:16], ">u8").astype(np.uint64)


def _mix(h: Lanes) -> Lanes:
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def as_text(lanes: Lanes) -> NDArray[np.str_]:
    """The ids in hexadecimal, with the fewest digits, 8 or more, that tell all apart."""
    digits = _fewest(lanes)
    shown = np.ascontiguousarray(lanes.T).astype(">u8").view(np.uint8)[:, : (digits + 1) // 2]
    text = np.frombuffer(shown.tobytes().hex().encode(), np.uint8).reshape(lanes.shape[1], -1)[:, :digits]
    return np.ascontiguousarray(text.astype(np.uint32)).view(f"U{digits}").reshape(-1)


def _fewest(lanes: Lanes) -> int:
    """One digit more than the longest beginning that two ids share."""
    first, second = lanes
    ordered = np.sort(first)
    shared = ordered[1:] ^ ordered[:-1]
    least = int(shared.min(initial=np.iinfo(np.uint64).max))
    if least:
        return max(FEWEST_DIGITS, _equal_digits(least) + 1)
    order = np.lexsort((second, first))  # two ids with one first lane: once in a great many studies
    twins = first[order][1:] == first[order][:-1]
    least = int((second[order][1:] ^ second[order][:-1])[twins].min())
    assert least, "two rows with the same choices"
    return _OF_LANE + _equal_digits(least) + 1


def _equal_digits(difference: int) -> int:
    """The leading hexadecimal digits in which two numbers of 64 bits are equal, from what they differ in."""
    return (64 - difference.bit_length()) // 4
