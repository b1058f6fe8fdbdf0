"""What was measured of one device, and how well it predicts: dated, and good for that device and torch only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property
from itertools import permutations
from typing import Any, TypeVar

from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError
from explorer.latency.statistics import median
from explorer.prediction.hardware import DIGITS
from explorer.prediction.host import HostFit
from explorer.prediction.rates import Rates

K = TypeVar("K", bound=Hashable)

SCHEMA = 2
MOST_DAYS = 90
"""After so many days a machine is seldom what it was: drivers, clocks and what runs beside change."""
WORST_MEDIAN, WORST_RATIO = 0.25, 1.3
"""Error of held-out blocks, and of the ratio of two of them, beyond which a prediction is not validated."""
LEAST_CLEAN = 0.5
"""Share of undisturbed samples below which the times themselves are in doubt: what slows all of them down shows in no
held-out block."""


@dataclass(frozen=True)
class HeldOut:
    """How predictions met times of blocks that no curve was fitted to.

    median, largest: of |predicted / measured - 1|; phases: the median of each phase. ratio: the largest factor between
    the predicted and the measured ratio of two blocks on one workload. blocks: measured and predicted milliseconds by
    what was run.
    """

    median: float
    largest: float
    ratio: float
    phases: Mapping[str, float]
    blocks: Mapping[str, tuple[float, float]]

    @staticmethod
    def of(blocks: Mapping[str, tuple[float, float]], workloads: Mapping[str, Workload]) -> HeldOut:
        """From measured and predicted milliseconds, and what each block ran on."""
        factors = {name: predicted / measured for name, (measured, predicted) in blocks.items()}
        errors = {name: abs(factor - 1) for name, factor in factors.items()}
        phases = _groups(errors, lambda name: workloads[name].phase)
        together = _groups(factors, workloads.__getitem__)
        ratios = [one / other for group in together.values() for one, other in permutations(group, 2)]
        return HeldOut(
            median=median(list(errors.values())),
            largest=max(errors.values()),
            ratio=max(ratios, default=1.0),
            phases={phase: median(of) for phase, of in phases.items()},
            blocks=dict(blocks),
        )

    def error(self, phase: str) -> float:
        """The median error of a phase, or of all where none of that was held out."""
        return self.phases.get(phase, self.median)

    def fault(self, phase: str) -> str | None:
        """Why predictions of a phase are not validated, None where they are."""
        error = self.error(phase)
        if error > WORST_MEDIAN:
            return f"held-out blocks in {phase} are off by {error:.0%} (median), more than {WORST_MEDIAN:.0%}"
        if self.ratio > WORST_RATIO:
            return f"a ratio of two held-out blocks is off by {self.ratio:.2f}x, more than {WORST_RATIO:g}x"
        return None


def _groups(values: Mapping[str, float], key: Callable[[str], K]) -> dict[K, list[float]]:
    found: dict[K, list[float]] = {}
    for name, value in values.items():
        found.setdefault(key(name), []).append(value)
    return found


@dataclass(frozen=True)
class OfDtype:
    """What one calibration found in one dtype: rates, costs of the host, and the error that predictions have.

    date: of the day, ISO. clean: share of samples that nothing disturbed, as far as `guard` watched.
    """

    rates: Rates
    host: HostFit
    held_out: HeldOut
    date: str
    clean: float
    guard: str

    def fault(self, phase: str) -> str | None:
        """Why predictions of a phase are not validated, None where they are."""
        if self.clean < LEAST_CLEAN:
            return f"only {self.clean:.0%} of the samples were undisturbed, fewer than {LEAST_CLEAN:.0%}"
        return self.held_out.fault(phase)

    @property
    def faults(self) -> list[str]:
        """Those of all phases that were held out, each once."""
        return list(dict.fromkeys(fault for phase in self.held_out.phases if (fault := self.fault(phase))))


@dataclass(frozen=True)
class Calibration:
    """One device. device: as torch names it. name: as a person does. by: who measured: the version of explorer."""

    device: str
    name: str
    threads: int
    torch: str
    by: str
    dtypes: Mapping[str, OfDtype]

    @property
    def kind(self) -> str:
        """`cpu`, `cuda`, `mps`: the device without its index."""
        return self.device.partition(":")[0]

    @property
    def on_threads(self) -> str:
        """ "1 thread", "2 threads"."""
        return f"{self.threads} thread{'' if self.threads == 1 else 's'}"

    def beside(self, earlier: Calibration | None) -> Calibration:
        """The same, with the dtypes that only an earlier calibration has, where device, threads and torch are one."""
        if earlier is None or replace(earlier, by=self.by, dtypes=self.dtypes) != self:
            return self
        return replace(self, dtypes={**earlier.dtypes, **self.dtypes})

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
            fields = {name: value for name, value in data.items() if name not in ("schema", "dtypes")}
            return Calibration(**fields, dtypes={name: _of_dtype(of) for name, of in data["dtypes"].items()})
        except (TypeError, KeyError, ValueError) as error:
            raise MeasureError(f"it is no calibration: {type(error).__name__}: {error}") from error


def _of_dtype(data: Mapping[str, Any]) -> OfDtype:
    held_out = HeldOut(**data["held_out"])
    pairs = {name: (measured, predicted) for name, (measured, predicted) in held_out.blocks.items()}
    read = {"rates": Rates.from_dict(data["rates"]), "host": HostFit.from_dict(data["host"])}
    return OfDtype(**{**data, **read, "held_out": replace(held_out, blocks=pairs)})


def stale(calibration: Calibration, dtype: str, torch_version: str, today: date) -> str | None:
    """Why a calibration of a dtype that it has should be made anew, None where it is good."""
    days = (today - date.fromisoformat(calibration.dtypes[dtype].date)).days
    if calibration.torch != torch_version:
        why = f"was measured with torch {calibration.torch}, this is {torch_version}"
    elif days > MOST_DAYS:
        why = f"is {days} days old, more than {MOST_DAYS}"
    else:
        return None
    return f"the calibration of {calibration.name} in {dtype} {why}: run `explorer calibrate` again"
