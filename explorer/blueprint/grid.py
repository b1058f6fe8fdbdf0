"""The axes of a study as the dimensions of arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from explorer.blueprint.axes import Axis, Option
from explorer.blueprint.varied import Places, Varied

R = TypeVar("R")


@dataclass(frozen=True)
class Grid:
    """The product of axes, the first one slowest. A *place* is the flat index of one option of each.

    An axis of one option has no dimension: arrays have a limited number of them.
    """

    axes: tuple[Axis, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of options of each axis that has several."""
        return tuple(len(axis.options) for axis in self.axes if len(axis.options) > 1)

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def dims(self) -> dict[str, int]:
        """The dimension of each axis that has several options."""
        several = (axis.name for axis in self.axes if len(axis.options) > 1)
        return {name: dim for dim, name in enumerate(several)}

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How many places further the next option of each dimension is."""
        return tuple(math.prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    def along(self, axis: Axis, value: Callable[[Option], R], key: Callable[[R], Hashable] | None = None) -> Varied[R]:
        """A value for each option of one axis. key: what tells values apart; None: the value itself."""
        values = [value(option) for option in axis.options]
        if axis.name not in self.dims:
            return Varied.constant(values[0], self.shape)
        return Varied.along(self.dims[axis.name], values, self.shape, key)

    def option_at(self, axis: Axis, place: int) -> int:
        """Which option of an axis a place has."""
        return place // self.strides[self.dims[axis.name]] % len(axis.options) if axis.name in self.dims else 0

    def options_at(self, axis: Axis, places: Places) -> NDArray[np.int32]:
        """Which option of an axis each of these places has."""
        if axis.name not in self.dims:
            return np.zeros(len(places), np.int32)
        return (places // self.strides[self.dims[axis.name]] % len(axis.options)).astype(np.int32)

    def with_option(self, places: Places, axis: Axis, option: int) -> Places:
        """The places with another option of one axis."""
        if axis.name not in self.dims:
            return places
        stride = self.strides[self.dims[axis.name]]
        return places + (option - places // stride % len(axis.options)) * stride

    def first_with(self, axis: Axis, option: int) -> int:
        """The first place with this option of an axis."""
        return option * self.strides[self.dims[axis.name]] if axis.name in self.dims else 0
