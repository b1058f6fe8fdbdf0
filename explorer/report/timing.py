"""Latency columns: measured is measured, predicted is predicted; what is not known says so, and never shows 0."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.report.column import Column, change, figures
from explorer.report.rows import Row, are_uneven, timed_rows
from explorer.report.units import NOTHING, UNKNOWN, four_digits, percent

Latency = Mapping[str, Any]

NOT_MEASURED = "not measured"
FAILED = "failed"
PREDICTED = "predicted"


@dataclass(frozen=True)
class Lane:
    """What entries of one column share: measured or predicted, where, in which implementation and regime.

    summed: "parts" for a sum of them. What failed before a part of it was known has None there.
    """

    source: str
    device: str | None
    impl: str | None
    regime: str | None
    summed: str | None = None

    @staticmethod
    def of(entry: Latency) -> "Lane":
        return Lane(entry["source"], entry["device"], entry.get("impl"), entry.get("regime"), entry.get("of"))

    def covers(self, other: "Lane") -> bool:
        """Whether what failed here failed there too: what is not known here may be anything."""
        pairs = ((self.device, other.device), (self.impl, other.impl), (self.regime, other.regime))
        alike = (self.source, self.summed) == (other.source, other.summed)
        return alike and all(own in (None, value) for own, value in pairs)

    def entry(self, row: Row) -> Latency | None:
        """The row's first entry that belongs to this column, or the failure that covers it."""
        entries: Sequence[Latency] = row.cost["latencies"]
        own = [entry for entry in entries if Lane.of(entry) == self]
        lost = (entry for entry in entries if entry["median_ms"] is None and Lane.of(entry).covers(self))
        return own[0] if own else next(lost, None)


def timing_columns(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    """Median, difference, verdict and interval of each lane; "not measured" alone where no row has a latency."""
    timed = timed_rows(rows)
    found = _lanes(timed)
    if not found:
        return [figures("latency ms", rows, lambda row: NOT_MEASURED, 10)]
    of = "block " if any(row.part == "model" for row in rows) else ""
    columns = []
    for lane in sorted(found, key=lambda lane: lane.source == PREDICTED):
        column = _Timed(lane, timed, of, _telling(lane, found), compared)
        columns += column.predicted() if lane.source == PREDICTED else column.measured()
    return columns


def latencies(rows: Sequence[Row]) -> list[Latency]:
    """All latency entries of the rows and of their blocks."""
    costs = {id(cost): cost for row in rows for cost in (row.cost, *row.block_costs)}
    return [entry for cost in costs.values() for entry in cost["latencies"]]


def stand_apart(rows: Sequence[Row]) -> bool:
    """Whether latencies have a table of their own, of blocks: no one number is that of a layer of each row."""
    return are_uneven(rows) and bool(latencies(rows))


def clean_rounds(entry: Latency) -> int:
    """Rounds in which nothing else used the device; where there were none the times are of all rounds."""
    return entry.get("rounds") or 0 if entry.get("clean") != 0 else 0


def _lanes(rows: Sequence[Row]) -> list[Lane]:
    """The lanes of all rows in the order in which they appear, then those in which all failed."""
    entries = [entry for row in rows for entry in row.cost["latencies"]]
    timed = dict.fromkeys(Lane.of(entry) for entry in entries if entry["median_ms"] is not None)
    failed = dict.fromkeys(Lane.of(entry) for entry in entries if entry["median_ms"] is None)
    found = list(timed | failed)
    return [lane for lane in found if lane in timed or not any(lane.covers(other) for other in found if other != lane)]


def _telling(lane: Lane, among: Sequence[Lane]) -> str:
    """What tells a lane from the others of its source; a prediction always names its hardware."""
    alike = [other for other in among if other.source == lane.source]
    told = []
    for field in ("device", "impl", "regime"):
        value, values = getattr(lane, field), {getattr(other, field) for other in alike} - {None}
        if value and (len(values) > 1 or (field == "device" and lane.source == PREDICTED)):
            told.append(value)
    if lane.summed:
        told.append(f"sum of {lane.summed}")
    return "".join(f", {word}" for word in told)


@dataclass(frozen=True)
class _Timed:
    """The columns of one lane. of: in front of headers, tail: behind them. compared: with differences."""

    lane: Lane
    rows: Sequence[Row]
    of: str
    tail: str
    compared: bool

    def measured(self) -> list[Column]:
        columns = [self._column(f"{self.of}latency ms", milliseconds, 1)]
        if all(_median(self.lane.entry(row)) is None for row in self.rows):
            return columns
        if self.compared:
            columns.append(figures(f"Δ latency{self.tail}", self.rows, self._difference, 2))
        if self.lane.summed:  # a sum has no rounds of its own
            return columns
        if any((self.lane.entry(row) or {}).get("verdict") for row in self.rows):
            columns.append(self._column("verdict", _verdict, 2))
        return [*columns, self._column("low–high ms", interval, 8)]

    def predicted(self) -> list[Column]:
        columns = [self._column(f"{self.of}predicted ms", _range, 2)]
        if self.compared:
            header = f"Δ predicted{self.tail}"
            columns.append(change(header, self.rows, lambda row: _median(self.lane.entry(row)), 3))
        return columns

    def _column(self, header: str, cell: Callable[[Latency | None], str], rank: int) -> Column:
        return figures(f"{header}{self.tail}", self.rows, lambda row: cell(self.lane.entry(row)), rank)

    def _difference(self, row: Row) -> str:
        if row.is_baseline:
            return ""
        own, base = self.lane.entry(row), self.lane.entry(row.base) if row.base else None
        return _difference(own, base) if self.lane.summed else _ratio(own)


def milliseconds(entry: Latency | None) -> str:
    """The median: "1.234"; or that there is none."""
    if entry is None:
        return NOT_MEASURED
    return FAILED if entry["median_ms"] is None else four_digits(entry["median_ms"])


def _ratio(entry: Latency | None) -> str:
    """How much slower than the baseline in the same rounds, with its interval: "+4.8% (2.1 to 7.6)"."""
    ratio = (entry or {}).get("ratio")
    if not ratio:
        return NOTHING
    value = f"{100 * (ratio['value'] - 1):+.1f}%"
    if ratio["low"] is None or ratio["high"] is None:
        return f"{value} (?)"
    return f"{value} ({100 * (ratio['low'] - 1):.1f} to {100 * (ratio['high'] - 1):.1f})"


def _difference(own: Latency | None, base: Latency | None) -> str:
    """How a sum of parts differs from the baseline's, where that is more than the errors of two such sums make it.

    With an error of at most e each, equal blocks have sums that differ by (1 + e) / (1 - e) at most.
    """
    value, of = _median(own), _median(base)
    errors = [entry.get("error") for entry in (own, base) if entry]
    error = max((error for error in errors if error is not None), default=None)
    if value is None or of is None or error is None or error >= 1 or not _alike(own, base):
        return NOTHING
    bound = (1 + error) / (1 - error)
    return f"within {100 * (bound - 1):.1f}%" if max(value / of, of / value) <= bound else percent(value, of)


def _alike(one: Latency | None, other: Latency | None) -> bool:
    """Whether both were measured in one session, with their weights in the same place."""
    return all((one or {}).get(key) == (other or {}).get(key) for key in ("session", "cache"))


def _range(entry: Latency | None) -> str:
    """ "1.234", with the span in which it is expected where one is known."""
    median = _median(entry)
    return UNKNOWN if median is None else f"{four_digits(median)} ({interval(entry)})"


def _median(entry: Latency | None) -> float | None:
    return entry["median_ms"] if entry else None


def interval(entry: Latency | None) -> str:
    """ "1.203–1.265": low to high, in milliseconds."""
    low, high = (entry["low_ms"], entry["high_ms"]) if entry else (None, None)
    return NOTHING if low is None or high is None else f"{four_digits(low)}–{four_digits(high)}"


def _verdict(entry: Latency | None) -> str:
    return str((entry or {}).get("verdict") or NOTHING)
