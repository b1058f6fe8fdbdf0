"""Predict the latency of a block from its rows: on a calibrated device a point, on any other an estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from explorer.blueprint.workload import Workload
from explorer.cost.ledger.rows import Row
from explorer.latency.temperature import COLD_WEIGHTS, WARM
from explorer.prediction.calibration import Calibration, HeldOut, stale
from explorer.prediction.estimate import Reached, highest, likely, lowest
from explorer.prediction.hardware import Hardware, Span
from explorer.prediction.passes import pass_times
from explorer.prediction.prediction import Prediction, checked_regime
from explorer.prediction.working_set import WorkingSet

Target = Calibration | Hardware
NOT_VALIDATED = "prediction not validated on this device"


def predict(
    rows: Sequence[Row],
    workload: Workload,
    target: Target,
    *,
    regime: str | None = None,
    copies: int | None = None,
) -> Prediction:
    """How long the rows of `rows_of` take on a device, in milliseconds.

    regime: as measurements have them; None: the device's headline. copies: of the weights that are used in turn, as a
    measurement has them; None: in decode so many that no cache holds them, as in a model, else one.
    What cannot be told is None with its reason, never a default.

    Raises: MeasureError for a regime that the device does not have.
    """
    asked = _Asked(tuple(rows), workload, copies)
    if isinstance(target, Calibration):
        return _calibrated(asked, target, checked_regime(regime, target.kind))
    return _estimated(asked, target, checked_regime(regime, "cuda"))


@dataclass(frozen=True)
class _Asked:
    """What shall be predicted."""

    rows: tuple[Row, ...]
    workload: Workload
    copies: int | None

    @property
    def around(self) -> WorkingSet:
        """What lies between two uses of the same bytes."""
        if self.copies is None and self.workload.phase == "decode":
            return WorkingSet.of(self.rows, math.inf)
        return WorkingSet.of(self.rows, self.copies or 1)

    @property
    def cache(self) -> str:
        """Where weights are taken to lie, as measurements say it."""
        rotated = self.workload.phase == "decode" if self.copies is None else self.copies > 1
        return COLD_WEIGHTS if rotated else WARM

    @property
    def refusal(self) -> str | None:
        """Why rows cannot say what was asked for."""
        workload = self.workload
        if not self.rows:
            return "not predicted: the block does not run, its output stands in a cache"
        if workload.weight_dtype not in (None, workload.dtype):
            both = f"weights in {workload.weight_dtype} beside activations in {workload.dtype}"
            return f"not predicted: {both} are counted only"
        if workload.recompute not in (None, "none"):
            return f"not predicted: recompute {workload.recompute} is counted only"
        return None

    @property
    def doubt(self) -> str | None:
        """What of the rows no held-out block was like."""
        unknown = dict.fromkeys(row.op for row in self.rows if not row.counted)
        if unknown:
            return f"operators without a rule take the time of an addition: {', '.join(unknown)}"
        return "no training pass is among the held-out blocks" if self.workload.phase == "train" else None


def _calibrated(asked: _Asked, calibration: Calibration, regime: str) -> Prediction:
    found = calibration.dtypes.get(asked.workload.dtype)
    basis = f"calibrated with torch {calibration.torch}, {calibration.on_threads}"
    nothing = Prediction(calibration.name, regime, basis, calibration.digest, cache=asked.cache)
    if asked.refusal:
        return replace(nothing, reason=asked.refusal)
    if found is None:
        known = ", ".join(calibration.dtypes)
        return replace(
            nothing, reason=f"not predicted: {asked.workload.dtype} is not calibrated on this device, only {known}"
        )
    phase = asked.workload.phase
    times = pass_times(asked.rows, asked.around, found.rates, found.host)
    ms, error = times.of(regime) / 1e3, found.held_out.error(phase)
    outdated = stale(calibration, asked.workload.dtype, _torch_version(), date.today())
    doubt = found.fault(phase) or outdated or _elsewhere(calibration, regime) or asked.doubt
    return replace(
        nothing,
        basis=f"{basis}, {found.date}; {_met(found.held_out, phase)}",
        ms=ms,
        low=ms * max(1 - error, 0.0),
        high=ms * (1 + error),
        shares=times.shares(regime),
        validated=doubt is None,
        reason=None if doubt is None else f"{NOT_VALIDATED}: {doubt}",
    )


def _met(held_out: HeldOut, phase: str) -> str:
    which = f"held-out blocks in {phase}" if phase in held_out.phases else "held-out blocks"
    return f"{which} off by {held_out.error(phase):.1%} (median), all by {held_out.largest:.0%} at most"


def _torch_version() -> str:
    import torch

    return torch.__version__


def _elsewhere(calibration: Calibration, regime: str) -> str | None:
    """Held-out blocks were timed in the headline regime only."""
    headline = checked_regime(None, calibration.kind)
    return None if regime == headline else f"held-out blocks were timed in the regime {headline!r}, not in {regime!r}"


def _estimated(asked: _Asked, hardware: Hardware, regime: str) -> Prediction:
    peak = hardware.peak(asked.workload.dtype)
    basis = f"estimate: data sheet x achievable range ({_reached(hardware)}); {hardware.sources}"
    nothing = Prediction(hardware.name, regime, basis, hardware.digest, cache=asked.cache)
    if asked.refusal:
        return replace(nothing, reason=asked.refusal)
    if peak is None:
        missing = f"not predicted: the table has no peak of {hardware.name} in {asked.workload.dtype}"
        return replace(nothing, reason=missing)
    middle, fast, slow = (
        Reached.of(hardware, peak, share, dispatch).times(asked.rows)
        for share, dispatch in ((likely, likely), (highest, lowest), (lowest, highest))
    )
    return replace(
        nothing,
        ms=middle.of(regime) / 1e3,
        low=fast.of(regime) / 1e3,
        high=slow.of(regime) / 1e3,
        shares=middle.shares(regime),
        reason=f"{NOT_VALIDATED}: {asked.doubt or _too_large(asked, hardware) or 'nothing was measured on it'}",
    )


def _too_large(asked: _Asked, hardware: Hardware) -> str | None:
    needed, has = WorkingSet.of(asked.rows).weights / 1e9, hardware.memory_gb
    return f"its weights, {needed:.3g} GB, do not fit {has:g} GB" if needed > has else None


def _reached(hardware: Hardware) -> str:
    spans = {"products": hardware.gemm, "bandwidth": hardware.bandwidth, "us a launch": hardware.host.dispatch_us}
    return ", ".join(f"{name} {_written(span)}" for name, span in spans.items())


def _written(span: Span) -> str:
    return f"{span.point:g} [{span.low:g}, {span.high:g}]"
