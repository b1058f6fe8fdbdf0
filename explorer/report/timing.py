"""Latency columns: measured is measured; where nothing was measured the cell says so, and never shows 0."""

from collections.abc import Mapping, Sequence
from typing import Any

from explorer.report.column import Column, change, figures
from explorer.report.rows import Row
from explorer.report.units import NOTHING, UNEVEN, four_digits

Latency = Mapping[str, Any]

NOT_MEASURED = "not measured"
FAILED = "failed"


def timing_columns(rows: Sequence[Row], *, compared: bool) -> list[Column]:
    """Median, difference, interval and verdict; a single column of "not measured" where no row was measured."""
    blocks = shows_blocks(rows)
    header = "block latency ms" if blocks else "latency ms"
    entries = [_entry(row, blocks) for row in rows]
    if not any(entries) and not blocks:
        return [figures(header, rows, lambda row: FAILED if row.combination["error"] else NOT_MEASURED, 10)]
    timed = [entry for entry in entries if entry and entry["median_ms"] is not None]
    labelled = len({(entry["source"], entry["device"]) for entry in timed}) > 1
    columns = [figures(header, rows, lambda row: _median(row, _entry(row, blocks), labelled), 2)]
    if compared:
        columns.append(change("Δ latency", rows, lambda row: _figure(_entry(row, blocks), "median_ms"), 3))
    columns.append(figures("low–high ms", rows, lambda row: _interval(_entry(row, blocks)), 8))
    if any(entry and entry.get("verdict") for entry in entries):
        columns.append(figures("verdict", rows, lambda row: _verdict(_entry(row, blocks)), 8))
    return columns


def latencies(rows: Sequence[Row]) -> list[Latency]:
    """All latency entries of the rows and of their blocks."""
    costs = [cost for row in rows for cost in (row.cost, *row.block_costs)]
    entries = {id(cost): cost["latency"] for cost in costs if cost["latency"]}
    return list(entries.values())


def block_medians(row: Row) -> str:
    """ "local 1.234, global 1.456" where a row about a whole model has several blocks that were measured, else ""."""
    if row.part != "model" or len(row.block_costs) < 2 or not any(cost["latency"] for cost in row.block_costs):
        return ""
    return ", ".join(f"{cost['name']} {_milliseconds(cost['latency'])}" for cost in row.block_costs)


def shows_blocks(rows: Sequence[Row]) -> bool:
    """Whether rows about whole models show the latency of a block, because only blocks were measured."""
    measured = any(cost["latency"] for row in rows for cost in row.block_costs)
    return measured and not any(row.cost["latency"] for row in rows)


def _entry(row: Row, blocks: bool) -> Latency | None:
    if not blocks:
        found: Latency | None = row.cost["latency"]
        return found
    return row.block_costs[0]["latency"] if len(row.block_costs) == 1 else None


def _figure(entry: Latency | None, key: str) -> float | None:
    return entry[key] if entry else None


def _median(row: Row, entry: Latency | None, labelled: bool) -> str:
    if entry is None and block_medians(row):
        return UNEVEN
    if entry is None and row.combination["error"]:
        return FAILED
    origin = f" {entry['source']} {entry['device']}" if labelled and entry and entry["median_ms"] is not None else ""
    return _milliseconds(entry) + origin


def _milliseconds(entry: Latency | None) -> str:
    if entry is None:
        return NOT_MEASURED
    return FAILED if entry["median_ms"] is None else four_digits(entry["median_ms"])


def _interval(entry: Latency | None) -> str:
    low, high = _figure(entry, "low_ms"), _figure(entry, "high_ms")
    return NOTHING if low is None or high is None else f"{four_digits(low)}–{four_digits(high)}"


def _verdict(entry: Latency | None) -> str:
    return str((entry or {}).get("verdict") or NOTHING)
