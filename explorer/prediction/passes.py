"""What one pass of a block takes on a calibrated device."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.cost.ledger.rows import Row
from explorer.prediction.host import HostFit
from explorer.prediction.prediction import Times
from explorer.prediction.rates import Rates
from explorer.prediction.working_set import WorkingSet


def pass_times(rows: Sequence[Row], around: WorkingSet, rates: Rates, host: HostFit) -> Times:
    """Microseconds of the host and of the device."""
    kernels = [row for row in rows if row.kernels]
    splits = [rates.split(row, around) for row in kernels]
    return Times(
        host=host.time(rows, rates, around.moved),
        nodes=sum(rates.node(row) for row in kernels),
        bandwidth=sum(split.bandwidth for split in splits),
        math=sum(split.math for split in splits),
        last=rates.node(kernels[-1]) + splits[-1].total if kernels else 0.0,
    )
