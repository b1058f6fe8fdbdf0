"""Times between and beyond those that were measured: never shorter for more bytes or more operations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

Point = tuple[float, float]


@dataclass(frozen=True)
class TimeCurve:
    """Microseconds by bytes, linear between the points, in proportion beyond them on both sides.

    A time that was measured below one of a smaller size counts as that one's: noise must not make more work cheaper.
    """

    points: tuple[Point, ...]

    @staticmethod
    def through(points: Iterable[Point]) -> TimeCurve:
        """The curve through (bytes, microseconds), in any order; needs one point at least."""
        sizes, times = _sorted(points)
        return TimeCurve(tuple(zip(sizes, accumulate(times, max), strict=True)))

    def at(self, size: float) -> float:
        """Microseconds of so many bytes."""
        first, last = self.points[0], self.points[-1]
        if size <= first[0]:
            return first[1] * size / first[0]
        if size >= last[0]:
            return last[1] * size / last[0]
        return _between(self.points, size)

    def at_rate_up_to(self, size: float, most: float) -> float:
        """Microseconds of `size` bytes at the slowest rate of all sizes from it to `most`."""
        if not size:
            return 0.0
        between = (place for place, _ in self.points if size < place < most)
        return size * max(self.at(place) / place for place in (size, *between, max(most, size)))


@dataclass(frozen=True)
class Roof:
    """Nanoseconds of one byte by how many FLOPs are done with it: bandwidth on the left, arithmetic on the right.

    Linear between the points; below the first the byte alone takes its time, beyond the last every FLOP does. More
    FLOPs with the same bytes take no less time, nor do more bytes with the same FLOPs: a byte's time never falls, and
    a FLOP's never rises, along the axis.
    """

    points: tuple[Point, ...]

    @staticmethod
    def through(points: Iterable[Point]) -> Roof:
        """The roof through (FLOPs for each byte, nanoseconds a byte), in any order; needs one point at least."""
        intensities, times = _sorted(points)
        made = [(intensities[0], times[0])]
        for intensity, time in zip(intensities[1:], times[1:], strict=True):
            before = made[-1]
            made.append((intensity, min(max(time, before[1]), before[1] * intensity / before[0])))
        return Roof(tuple(made))

    def at(self, intensity: float) -> float:
        """Nanoseconds a byte."""
        first, last = self.points[0], self.points[-1]
        if intensity <= first[0]:
            return first[1]
        if intensity >= last[0]:
            return last[1] * intensity / last[0]
        return _between(self.points, intensity)

    @property
    def floor(self) -> float:
        """Nanoseconds of a byte with hardly any arithmetic."""
        return self.points[0][1]


@dataclass(frozen=True)
class Reach:
    """Nanoseconds to read one byte of weights by the bytes of all weights: the more there are, the further away.

    Linear between the points, constant beyond them; a time that was measured below one of fewer bytes counts as that.
    """

    points: tuple[Point, ...]

    @staticmethod
    def through(points: Iterable[Point]) -> Reach:
        """The curve through (bytes, nanoseconds a byte), in any order; needs one point at least."""
        sizes, times = _sorted(points)
        return Reach(tuple(zip(sizes, accumulate(times, max), strict=True)))

    def at(self, footprint: float) -> float:
        """Nanoseconds a byte; infinity is a footprint too."""
        first, last = self.points[0], self.points[-1]
        if footprint <= first[0]:
            return first[1]
        return last[1] if footprint >= last[0] else _between(self.points, footprint)

    @property
    def nearest(self) -> float:
        """Nanoseconds of a byte that lies as near as it can."""
        return self.points[0][1]


def _sorted(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    """Places and times in the order of places; of several times at one place the mean: shapes differ."""
    found: dict[float, list[float]] = {}
    for place, time in points:
        found.setdefault(place, []).append(time)
    places = sorted(found)
    return places, [fmean(found[place]) for place in places]


def _between(points: Sequence[Point], place: float) -> float:
    after = bisect_right(points, place, key=lambda point: point[0])
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (place - left) / (right - left)
