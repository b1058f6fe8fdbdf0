"""What was measured of one device, and how well it predicts: dated, and good for that device and torch only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property
from itertools import permutations
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.statistics import median
from explorer.prediction.hardware import DIGITS
from explorer.prediction.host import HostFit
from explorer.prediction.rates import Rates

SCHEMA = 1
MOST_DAYS = 90
"""After so many days a machine is seldom what it was: drivers, clocks and what runs beside change."""
WORST_MEDIAN, WORST_RATIO = 0.25, 1.3
"""Error of held-out blocks, and of the ratio of two of them, beyond which a prediction is not validated."""


@dataclass(frozen=True)
class HeldOut:
    """How predictions met times of blocks that no curve was fitted to.

    median, largest: of |predicted / measured - 1|. ratio: the largest factor between the predicted and the measured
    ratio of two blocks on one workload. blocks: measured and predicted milliseconds by what was run.
    """

    median: float
    largest: float
    ratio: float
    blocks: Mapping[str, tuple[float, float]]

    @staticmethod
    def of(blocks: Mapping[str, tuple[float, float]], groups: Iterable[Sequence[str]]) -> HeldOut:
        """From measured and predicted milliseconds; groups: blocks that ran on one workload, whose ratios are told."""
        factors = {name: predicted / measured for name, (measured, predicted) in blocks.items()}
        errors = [abs(factor - 1) for factor in factors.values()]
        ratios = [factors[one] / factors[other] for group in groups for one, other in permutations(group, 2)]
        return HeldOut(median(errors), max(errors), max(ratios, default=1.0), dict(blocks))

    @property
    def fault(self) -> str | None:
        """Why predictions are not validated, None where they are."""
        if self.median > WORST_MEDIAN:
            return f"held-out blocks are off by {self.median:.0%} (median), more than {WORST_MEDIAN:.0%}"
        if self.ratio > WORST_RATIO:
            return f"a ratio of two held-out blocks is off by {self.ratio:.2f}x, more than {WORST_RATIO:g}x"
        return None


@dataclass(frozen=True)
class OfDtype:
    """Rates of the device in one dtype, and the error that predictions with them have."""

    rates: Rates
    held_out: HeldOut


@dataclass(frozen=True)
class Calibration:
    """One device. device: as torch names it. name: as a person does. clean: share of samples that nothing disturbed.

    by: who measured: the version of explorer. guard: what watched for disturbance. llc_bytes: the last-level cache.
    """

    device: str
    name: str
    threads: int
    date: str
    torch: str
    by: str
    guard: str
    clean: float
    llc_bytes: int | None
    host: HostFit
    dtypes: Mapping[str, OfDtype]

    @property
    def on_host(self) -> bool:
        """Whether the host is the device, so that launching and working add up."""
        return self.device.partition(":")[0] == "cpu"

    @cached_property
    def digest(self) -> str:
        """A hash of the whole: predictions with the same digest rest on the same measurements."""
        told = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:DIGITS]

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {"schema": SCHEMA, **asdict(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        """What `to_dict` made, read again.

        Raises: MeasureError for another schema, and for what is no calibration.
        """
        if data.get("schema") != SCHEMA:
            raise MeasureError(f"its schema is {data.get('schema')!r}, this version reads {SCHEMA}")
        try:
            fields = {name: value for name, value in data.items() if name not in ("schema", "host", "dtypes")}
            dtypes = {name: _of_dtype(of) for name, of in data["dtypes"].items()}
            return Calibration(**fields, host=HostFit.from_dict(data["host"]), dtypes=dtypes)
        except (TypeError, KeyError, ValueError) as error:
            raise MeasureError(f"it is no calibration: {type(error).__name__}: {error}") from error


def _of_dtype(data: Mapping[str, Any]) -> OfDtype:
    held_out = HeldOut(**data["held_out"])
    pairs = {name: (measured, predicted) for name, (measured, predicted) in held_out.blocks.items()}
    return OfDtype(Rates.from_dict(data["rates"]), replace(held_out, blocks=pairs))


def stale(calibration: Calibration, torch_version: str, today: date) -> str | None:
    """Why a calibration should be made anew, None where it is good."""
    days = (today - date.fromisoformat(calibration.date)).days
    if calibration.torch != torch_version:
        why = f"was measured with torch {calibration.torch}, this is {torch_version}"
    elif days > MOST_DAYS:
        why = f"is {days} days old, more than {MOST_DAYS}"
    else:
        return None
    return f"the calibration of {calibration.name} {why}: run `explorer calibrate` again"
