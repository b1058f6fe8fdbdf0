"""Latency columns: measured is measured, predicted is predicted; what is not known says so, and never shows 0."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from explorer.report.column import Column, change, figures
from explorer.report.rows import Row
from explorer.report.units import NOTHING, UNEVEN, UNKNOWN, four_digits, percent

Latency = Mapping[str, Any]

NOT_MEASURED = "not measured"
FAILED = "failed"
PREDICTED = "predicted"


@dataclass(frozen=True)
class Lane:
    """What entries of one column share: measured or predicted, where, in which implementation and regime.

    summed: "parts" for a sum of them.
    """

    source: str
    device: str
    impl: str | None
    regime: str | None
    summed: str | None = None

    @staticmethod
    def of(entry: Latency) -> "Lane":
        return Lane(entry["source"], entry["device"], entry.get("impl"), entry.get("regime"), entry.get("of"))

    def entry(self, entries: Sequence[Latency]) -> Latency | None:
        """The first of the entries that belongs to this column."""
        return next((entry for entry in entries if Lane.of(entry) == self), None)


def timing_columns(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    """Median, difference, verdict and interval of each lane; "not measured" alone where no row has a latency."""
    blocks = shows_blocks(rows)
    found = _lanes(rows, blocks)
    measured = [lane for lane in found if lane.source != PREDICTED]
    columns = [] if measured else _unmeasured(rows, blocks, bool(found))
    for lane in measured:
        columns += _measured(lane, rows, blocks, _title(lane, found, blocks), compared=compared)
    for lane in found:
        if lane.source == PREDICTED:
            columns += _predicted(lane, rows, blocks, _title(lane, found, blocks), compared=compared)
    return columns


def latencies(rows: Sequence[Row]) -> list[Latency]:
    """All latency entries of the rows and of their blocks."""
    costs = {id(cost): cost for row in rows for cost in (row.cost, *row.block_costs)}
    return [entry for cost in costs.values() for entry in cost["latencies"]]


def clean_rounds(entry: Latency) -> int:
    """Rounds in which nothing else used the device; where there were none the times are of all rounds."""
    return entry.get("rounds") or 0 if entry.get("clean") != 0 else 0


def block_medians(row: Row) -> str:
    """ "local 1.234, global 1.456" where a row about a whole model has several blocks that were measured, else ""."""
    if row.part != "model" or len(row.block_costs) < 2 or not any(cost["latency"] for cost in row.block_costs):
        return ""
    return ", ".join(f"{cost['name']} {_milliseconds(cost['latency'])}" for cost in row.block_costs)


def shows_blocks(rows: Sequence[Row]) -> bool:
    """Whether rows about whole models show the latency of a block, because only blocks have one."""
    timed = any(cost["latency"] for row in rows for cost in row.block_costs)
    return timed and not any(row.cost["latency"] for row in rows)


def _lanes(rows: Sequence[Row], blocks: bool) -> list[Lane]:
    """The lanes of all rows in the order in which they appear; those of failures only where nothing else is."""
    entries = [entry for row in rows for entry in _entries(row, blocks)]
    timed = dict.fromkeys(Lane.of(entry) for entry in entries if entry["median_ms"] is not None)
    sources = {lane.source for lane in timed}
    untimed = dict.fromkeys(Lane.of(entry) for entry in entries if entry["source"] not in sources)
    return [*timed, *untimed]


def _entries(row: Row, blocks: bool) -> Sequence[Latency]:
    if not blocks:
        found: Sequence[Latency] = row.cost["latencies"]
        return found
    return row.block_costs[0]["latencies"] if len(row.block_costs) == 1 else ()


def _title(lane: Lane, among: Sequence[Lane], blocks: bool) -> str:
    """ "latency ms", with what tells the lane from the others; a prediction always names itself and its hardware."""
    alike = [other for other in among if other.source == lane.source]
    parts = [lane.device] if lane.source == PREDICTED else _telling(lane, alike, "device")
    parts += [*_telling(lane, alike, "impl"), *_telling(lane, alike, "regime")]
    if lane.summed:
        parts.append(f"sum of {lane.summed}")
    head = "predicted" if lane.source == PREDICTED else "latency"
    return f"{'block ' if blocks else ''}{head} ms{''.join(f', {part}' for part in parts)}"


def _telling(lane: Lane, among: Sequence[Lane], field: str) -> list[str]:
    values = {getattr(other, field) for other in among}
    return [str(getattr(lane, field))] if len(values) > 1 else []


def _measured(lane: Lane, rows: Sequence[Row], blocks: bool, title: str, *, compared: bool) -> list[Column]:
    def entry(row: Row) -> Latency | None:
        return lane.entry(_entries(row, blocks))

    tail = title.partition(" ms")[2]
    columns = [figures(title, rows, lambda row: _median(row, entry(row)), 1)]
    if lane.summed:  # a sum has no rounds of its own
        sums = figures(f"Δ latency{tail}", rows, lambda row: _difference(row, entry), 2)
        return [*columns, sums] if compared else columns
    if compared:
        columns.append(figures(f"Δ latency{tail}", rows, lambda row: _ratio(row, entry(row)), 2))
    if any((entry(row) or {}).get("verdict") for row in rows):
        columns.append(figures(f"verdict{tail}", rows, lambda row: _verdict(entry(row)), 2))
    columns.append(figures(f"low–high ms{tail}", rows, lambda row: _interval(entry(row)), 8))
    return columns


def _predicted(lane: Lane, rows: Sequence[Row], blocks: bool, title: str, *, compared: bool) -> list[Column]:
    def entry(row: Row) -> Latency | None:
        return lane.entry(_entries(row, blocks))

    columns = [figures(title, rows, lambda row: _range(entry(row)), 2)]
    if compared:
        tail = title.partition(" ms")[2]
        columns.append(change(f"Δ predicted{tail}", rows, lambda row: _figure(entry(row), "median_ms"), 3))
    return columns


def _unmeasured(rows: Sequence[Row], blocks: bool, predicted: bool) -> list[Column]:
    """A column that says so; beside predictions only where a measurement failed."""
    if predicted and not any(row.combination["error"] for row in rows):
        return []
    if not blocks or predicted:
        return [figures("latency ms", rows, lambda row: FAILED if row.combination["error"] else NOT_MEASURED, 10)]
    return [figures("block latency ms", rows, partial(_median, entry=None), 2)]


def _median(row: Row, entry: Latency | None) -> str:
    if entry is None and block_medians(row):
        return UNEVEN
    if entry is None and row.combination["error"]:
        return FAILED
    return _milliseconds(entry)


def _milliseconds(entry: Latency | None) -> str:
    if entry is None:
        return NOT_MEASURED
    return FAILED if entry["median_ms"] is None else four_digits(entry["median_ms"])


def _ratio(row: Row, entry: Latency | None) -> str:
    """How much slower than the baseline in the same rounds, with its interval: "+4.8% (2.1 to 7.6)"."""
    ratio = (entry or {}).get("ratio")
    if row.is_baseline or not ratio:
        return "" if row.is_baseline else NOTHING
    value = f"{100 * (ratio['value'] - 1):+.1f}%"
    if ratio["low"] is None or ratio["high"] is None:
        return f"{value} (?)"
    return f"{value} ({100 * (ratio['low'] - 1):.1f} to {100 * (ratio['high'] - 1):.1f})"


def _difference(row: Row, entry: Callable[[Row], Latency | None]) -> str:
    """How a sum of parts differs from the baseline's; within the error of such sums it says nothing."""
    own, base = entry(row), entry(row.base) if row.base else None
    value, of = _figure(own, "median_ms"), _figure(base, "median_ms")
    if row.is_baseline or value is None or of is None:
        return "" if row.is_baseline else NOTHING
    error = (own or {}).get("error")
    return f"within {100 * error:.1f}%" if error is not None and abs(value / of - 1) <= error else percent(value, of)


def _range(entry: Latency | None) -> str:
    """ "1.234", with the span in which it is expected where one is known."""
    if entry is None or entry["median_ms"] is None:
        return UNKNOWN
    return f"{four_digits(entry['median_ms'])} ({_interval(entry)})"


def _figure(entry: Latency | None, key: str) -> float | None:
    return entry[key] if entry else None


def _interval(entry: Latency | None) -> str:
    low, high = _figure(entry, "low_ms"), _figure(entry, "high_ms")
    return NOTHING if low is None or high is None else f"{four_digits(low)}–{four_digits(high)}"


def _verdict(entry: Latency | None) -> str:
    return str((entry or {}).get("verdict") or NOTHING)
