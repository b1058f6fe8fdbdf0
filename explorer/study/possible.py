"""Measured times that cannot be: faster than the peak of the device allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from explorer.prediction.hardware import implied
from explorer.prediction.hardware_table import HardwareTable
from explorer.study.measured import Entry, untimed

_WHICH = ("source", "device", "impl", "regime", "of")
"""What says which of a block's entries one is."""


def possible(entries: Sequence[Entry], cost: dict[str, Any], table: HardwareTable) -> list[Entry]:
    """The entries, those without their times whose block would do more FLOPs than a device of the table has.

    Held against the products of visible pairs: what a kernel must do at least. Raw times stay in `measurements`.
    """
    flops = cost["matmul_flops"] if cost["matmul_flops_exact"] is None else cost["matmul_flops_exact"]
    return [_checked(entry, flops, cost["workload"]["dtype"], table) for entry in entries]


def _checked(entry: Entry, flops: int | None, dtype: str, table: HardwareTable) -> Entry:
    hardware = table.known(entry["device"] or "")
    if hardware is None or flops is None or entry["median_ms"] is None:
        return entry
    fault = implied(flops, entry["median_ms"], hardware, dtype)
    return entry if fault is None else untimed(fault) | {key: entry[key] for key in _WHICH if key in entry}
