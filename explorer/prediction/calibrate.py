"""Measure the device at hand: kernels, tiny blocks, and held-out blocks that tell how good a prediction is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

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
    """Measure a device as `resolve_device` gives it, in under a minute on a CPU of two cores.

    plan: how much is sampled. guard: what watches for disturbance; None: the device's own. Torch's global state is left
    as it was. Raises: UsageError for a dtype in which no workload runs, MeasureError where a kernel fails.
    """
    import torch

    _check(dtypes)
    guard = guard or guard_for(device)
    with undisturbed(device), torch.no_grad():
        benches = [Bench.of(dtype, device) for dtype in dtypes]
        # One dtype after the other: its operands and copies take some gigabytes, which the next one then finds free.
        samples = {one.dtype: sample(dict(one.lanes()), guard, random.Random(0), plan, on_progress) for one in benches}
    us = {key: ms * 1e3 for found in samples.values() for key, ms in found.ms.items()}
    rates = {bench.dtype: bench.rates(us) for bench in benches}
    host = fit_host([one for bench in benches for one in bench.tiny_passes(us, rates[bench.dtype])])

    def found(bench: Bench) -> OfDtype:
        of, today = rates[bench.dtype], date.today().isoformat()
        return OfDtype(of, host, bench.errors(us, of, host), today, samples[bench.dtype].clean, guard.name)

    return Calibration(
        device=device,
        name=device_name(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        by=f"explorer {__version__}",
        dtypes={bench.dtype: found(bench) for bench in benches},
    )


def _check(dtypes: Sequence[str]) -> None:
    for dtype in dtypes:
        if dtype not in DTYPE_BYTES:
            guess = did_you_mean(dtype, DTYPE_BYTES)
            known = ", ".join(DTYPE_BYTES)
            raise UsageError(f"dtype {dtype!r} is unknown; it is one of: {known}{f'; {guess}' if guess else ''}")
