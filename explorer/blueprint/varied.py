"""A value at every place of a product of axes, held as a small array over the axes that it depends on.

A million combinations of ten axes are one array of a million places, but the norm of a block depends on one or two of
the axes. So values are found once for each way in which what they depend on varies, and broadcasting does the product.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
R = TypeVar("R")
Codes = NDArray[np.int32]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]

_LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False)
class Varied(Generic[T]):
    """One of ``values`` at each place of a product.

    values: distinct ones, in the order of the first place of each. codes: the index of the value, one dimension for
    each of ``shape``, of size 1 along those that the value does not depend on. shape: the product's. A *place* is the
    flat index into it, the last dimension fastest.
    """

    values: tuple[T, ...]
    codes: Codes
    shape: tuple[int, ...]

    @staticmethod
    def constant(value: R, shape: tuple[int, ...]) -> Varied[R]:
        """The same value everywhere."""
        return Varied((value,), np.zeros((1,) * len(shape), np.int32), shape)

    @staticmethod
    def along(
        dim: int, values: Sequence[R], shape: tuple[int, ...], key: Callable[[R], Hashable] | None = None
    ) -> Varied[R]:
        """A value for each index along one dimension. key: what tells values apart; None: the value itself."""
        found, numbers = _distinct(values, key)
        codes = np.asarray(numbers, np.int32).reshape([-1 if d == dim else 1 for d in range(len(shape))])
        return Varied(tuple(found), _narrow(codes), shape)

    @staticmethod
    def coded(values: Sequence[R], codes: NDArray[Any], shape: tuple[int, ...]) -> Varied[R]:
        """The values that an array of codes names; its dimensions are those of ``shape``, or of size 1."""
        numbers, firsts = ranked(codes.reshape(-1), len(values))
        named = codes.reshape(-1)[firsts]
        return Varied(tuple(values[code] for code in named), _narrow(numbers.reshape(codes.shape)), shape)

    @staticmethod
    def map(fn: Callable[..., R], *varied: Varied[Any], key: Callable[[R], Hashable] | None = None) -> Varied[R]:
        """``fn`` of the values at each place, called once for each different tuple of values there.

        Equal results become one (the first), and the axes along which the result does not vary are left out.

        key: what tells results apart; None: the result itself, so that 1, 1.0 and True are one.
        """
        shape = varied[0].shape
        among = [v for v in varied if not v.is_constant]
        if not among:
            return Varied.constant(fn(*(v.values[0] for v in varied)), shape)
        codes, firsts = joint(among)
        found = _at_each(varied, codes.shape, firsts)
        values, numbers = _distinct([fn(*given) for given in found], key)
        if len(values) < len(firsts):
            codes = _narrow(np.asarray(numbers, np.int32)[codes])
        return Varied(tuple(values), codes, shape)

    @property
    def is_constant(self) -> bool:
        return len(self.values) == 1

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of the product that the value depends on."""
        return tuple(dim for dim, size in enumerate(self.codes.shape) if size > 1)

    def at(self, place: int) -> T:
        """The value at one place."""
        if self.is_constant:
            return self.values[0]
        index = []
        for size in reversed(self.shape):
            place, here = divmod(place, size)
            index.append(here)
        return self.values[self.codes[_broadcast_index(reversed(index), self.codes)]]

    def array(self) -> NDArray[Any]:
        """The values themselves, numbers or truth values, in the shape of the codes."""
        return np.asarray(self.values)[self.codes]

    def everywhere(self) -> NDArray[Any]:
        """The values themselves, numbers or truth values, at every place."""
        return np.broadcast_to(self.array(), self.shape).reshape(-1)

    def flat(self, places: Places) -> Codes:
        """The codes at these places."""
        if self.is_constant:
            return np.zeros(len(places), np.int32)
        return np.broadcast_to(self.codes, self.shape).reshape(-1)[places]

    def fixed(self, dim: int, index: int) -> Varied[T]:
        """The value where one dimension has one index, whatever it has at a place."""
        if self.codes.shape[dim] == 1:
            return self
        return Varied.coded(self.values, self.codes.take([index], axis=dim), self.shape)

    def firsts(self, candidates: Places) -> list[int | None]:
        """For each value the first of some places that has it, None where none has.

        candidates: the places, as ``marked`` gives them.
        """
        end = len(candidates)
        others = tuple(dim for dim, size in enumerate(self.codes.shape) if size == 1)
        least = candidates.reshape(self.shape).min(axis=others, keepdims=True, initial=end)
        found = np.full(len(self.values), end, np.intp)
        np.minimum.at(found, self.codes.reshape(-1), least.reshape(-1))
        return [None if place == end else int(place) for place in found]


def marked(places: Places, size: int) -> Places:
    """At each place of a product of this size the place itself where it is one of ``places``, else the size."""
    result = np.full(size, size, np.intp)
    result[places] = places
    return result


def joint(varied: Sequence[Varied[Any]]) -> tuple[Codes, Places]:
    """Numbers the different tuples of values, in the order of their first places.

    Returns the numbers over the axes that any of them depends on (size 1 along the others), and for each number where
    it comes first in that array.
    """
    if len(varied) == 1:
        codes = varied[0].codes
        return codes, ranked(codes.reshape(-1), len(varied[0].values))[1]
    keys: NDArray[np.int64] = np.zeros((1,) * len(varied[0].shape), np.int64)
    most = 1
    for each in sorted(varied, key=lambda v: v.codes.size):
        if most * len(each.values) > _LARGEST_KEY:
            numbers, firsts = ranked(keys.reshape(-1), most)
            keys, most = numbers.reshape(keys.shape).astype(np.int64), len(firsts)
        keys = keys * len(each.values) + each.codes
        most *= len(each.values)
    numbers, firsts = ranked(keys.reshape(-1), most)
    return numbers.reshape(keys.shape), firsts


def ranked(keys: NDArray[Any], most: int) -> tuple[Codes, Places]:
    """Numbers different keys in the order in which they come first: (the number of each, where each number is first).

    most: all keys are from 0 to below this.
    """
    if most > 4 * len(keys) + 1024:
        _, firsts, numbers = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank[numbers.reshape(-1)], firsts[order]
    first = np.full(most, len(keys), np.intp)
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)  # of several the last assignment stays: the first place
    firsts = np.sort(first[first < len(keys)])
    rank = np.empty(most, np.int32)
    rank[keys[firsts]] = np.arange(len(firsts), dtype=np.int32)
    return rank[keys], firsts


def _at_each(varied: Sequence[Varied[Any]], shape: tuple[int, ...], firsts: Places) -> Iterable[tuple[Any, ...]]:
    """The tuple of values at each of these places of an array that all are broadcast to."""
    index = np.unravel_index(firsts, shape)
    columns = []
    for each in varied:
        codes = each.codes[_broadcast_index(index, each.codes)]
        columns.append([each.values[code] for code in codes.tolist()])
    return zip(*columns, strict=True)


def _broadcast_index(index: Iterable[Any], codes: Codes) -> tuple[Any, ...]:
    """The index into an array of what it has there once it is broadcast."""
    return tuple(i if size > 1 else i * 0 for i, size in zip(index, codes.shape, strict=True))


def _distinct(results: Iterable[R], key: Callable[[R], Hashable] | None) -> tuple[list[R], list[int]]:
    """The distinct results, and for each result which of them it is."""
    kept = list(results)  # all are alive until the end: a key may be made of ids
    numbers: dict[Hashable, int] = {}
    values: list[R] = []
    codes = []
    for result in kept:
        number = numbers.setdefault(result if key is None else key(result), len(values))
        if number == len(values):
            values.append(result)
        codes.append(number)
    return values, codes


def _narrow(codes: Codes) -> Codes:
    """The codes without the axes along which they do not vary."""
    for dim, size in enumerate(codes.shape):
        if size > 1:
            first = codes.take([0], axis=dim)
            if np.array_equal(first, codes.take([1], axis=dim)) and bool((codes == first).all()):
                codes = first
    return codes
