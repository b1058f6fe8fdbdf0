"""What a list of times says: pure functions over floats, in the unit they are given in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from explorer.errors import MeasureError

_ONE_SIDED = 0.025


@dataclass(frozen=True)
class Summary:
    """Median, 10th and 90th percentile and relative spread of `count` valid times; `dropped` were not valid."""

    median: float
    low: float
    high: float
    iqr_share: float
    count: int
    dropped: int
    steady: bool


def summarise(times: Sequence[float], *, within: float = 0.10) -> Summary:
    """The summary of the times that are finite and above 0; the others are counted as dropped.

    Raises MeasureError "no valid sample: ..." where none is left: an empty sample has a reason, never NaN or 0.
    """
    valid = [time for time in times if is_valid(time)]
    if not valid:
        raise MeasureError(f"no valid sample: {_why_empty(times)}")
    return Summary(
        median=median(valid),
        low=quantile(valid, 0.10),
        high=quantile(valid, 0.90),
        iqr_share=iqr_share(valid),
        count=len(valid),
        dropped=len(times) - len(valid),
        steady=is_steady(valid, within=within),
    )


def is_valid(time: float) -> bool:
    """Whether a clock can have meant it: finite and above 0."""
    return math.isfinite(time) and time > 0


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises MeasureError for no values."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, linear between neighbours (Hyndman & Fan 1996, type 7).

    Raises MeasureError for no values.
    """
    if not values:
        raise MeasureError("no valid sample: nothing was measured")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = math.ceil(place)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def half_interval(values: Sequence[float]) -> float:
    """Half the width of an interval that holds the median in at least 95 %, whatever the distribution: between order
    statistics, by the binomial (Conover 1999, "Practical nonparametric statistics", 3.2). Of fewer than six values, for
    which there is none, half their range.

    Raises MeasureError for no values.
    """
    if not values:
        raise MeasureError("no valid sample: nothing was measured")
    ordered, beside = sorted(values), _beside_interval(len(values))
    return (ordered[-1 - beside] - ordered[beside]) / 2


@cache
def _beside_interval(count: int) -> int:
    """How many values may lie on each side of that interval: at most 2.5 % of the binomial."""
    tail = 0.0
    for below in range(count):
        tail += math.comb(count, below) / 2**count
        if tail > _ONE_SIDED:
            return max(0, below - 1)
    return 0


def iqr_share(values: Sequence[float]) -> float:
    """The interquartile range over the median: how wide the middle half of the values lies. For values above 0."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)


def is_steady(values: Sequence[float], *, within: float = 0.10) -> bool:
    """Whether the medians of the first and the second half differ by at most `within` of the smaller one.

    Fewer than two values show nothing and are not steady. With an odd number the middle value is in neither half.
    """
    half = len(values) // 2
    if half == 0:
        return False
    first, second = median(values[:half]), median(values[-half:])
    return abs(first - second) <= within * min(first, second)


def spread(values: Sequence[float]) -> float:
    """(largest - smallest) / smallest, for values above 0."""
    return (max(values) - min(values)) / min(values)


def _why_empty(times: Sequence[float]) -> str:
    if not times:
        return "nothing was measured"
    return f"all {len(times)} readings were zero, negative or not finite"
