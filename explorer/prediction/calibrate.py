"""Measure the device at hand: kernels, tiny blocks, and held-out blocks that tell how good a prediction is."""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from datetime import date
from functools import partial

from explorer import __version__
from explorer.blueprint.workload import DTYPE_BYTES
from explorer.errors import UsageError, did_you_mean
from explorer.latency.device import device_name
from explorer.latency.guard import Guard, guard_for
from explorer.latency.undisturbed import undisturbed
from explorer.prediction.bench import Bench
from explorer.prediction.calibration import Calibration, OfDtype
from explorer.prediction.host import fit_host
from explorer.prediction.sampling import OnProgress, Plan, sample

DTYPES = ("float32", "bfloat16")


def calibrate(
    device: str,
    dtypes: Sequence[str] = DTYPES,
    *,
    plan: Plan | None = None,
    guard: Guard | None = None,
    on_progress: OnProgress | None = None,
) -> Calibration:
    """Measure a device as `resolve_device` gives it, in about 25 seconds for each dtype on a CPU of two cores.

    plan: how much is sampled. guard: what watches for disturbance; None: the device's own. Torch's global state is left
    as it was. Raises: UsageError for a dtype in which no workload runs, MeasureError where a kernel fails.
    """
    import torch

    _check(dtypes)
    guard, told = guard or guard_for(device), on_progress or (lambda stage, done, total: None)
    with undisturbed(device), torch.no_grad():
        found = {dtype: _of_dtype(dtype, device, plan, guard, told) for dtype in dict.fromkeys(dtypes)}
    return Calibration(
        device=device,
        name=device_name(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        by=f"explorer {__version__}",
        dtypes=found,
    )


def _of_dtype(dtype: str, device: str, plan: Plan | None, guard: Guard, told: OnProgress) -> OfDtype:
    """One dtype by itself. Its operands and copies take some gigabytes, which are free again for the next one."""
    bench = Bench.of(dtype, device)
    named = partial(_named, dtype, told)
    samples = sample(dict(bench.lanes()), guard, random.Random(0), plan, named)
    gc.collect()
    us = {key: ms * 1e3 for key, ms in samples.ms.items()}
    rates = bench.rates(us)
    host = fit_host(list(bench.tiny_passes(us, rates)))
    errors = bench.errors(us, rates, host)
    return OfDtype(rates, host, errors, date.today().isoformat(), samples.clean, guard.name)


def _named(dtype: str, told: OnProgress, stage: str, done: int, total: int) -> None:
    told(f"{dtype}: {stage}", done, total)


def _check(dtypes: Sequence[str]) -> None:
    for dtype in dtypes:
        if dtype not in DTYPE_BYTES:
            guess = did_you_mean(dtype, DTYPE_BYTES)
            known = ", ".join(DTYPE_BYTES)
            raise UsageError(f"dtype {dtype!r} is unknown; it is one of: {known}{f'; {guess}' if guess else ''}")
