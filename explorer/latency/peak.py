"""How much memory one call takes at its most: measured, beside the predicted peak."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.latency.clock import Call

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_HIGH_WATER = "5"  # proc_pid_clear_refs(5): VmHWM becomes what is resident now


@dataclass(frozen=True)
class Peak:
    """Bytes that a module, its inputs and one call took at most; None where that cannot be told, and `reason` why.

    reserved: of a device, what its allocator took from it meanwhile, its rounding and gaps included. method: how it was
    measured. The CUDA context (up to 1 GB) and kernels' code are in neither number.
    """

    bytes: int | None
    reserved: int | None = None
    method: str = ""
    reason: str | None = None


def peak_of(build: Callable[[], Call], device: str) -> Peak:
    """The peak of one call above what was there before `build` made its module and inputs and returned it.

    What building itself takes for a moment does not count. On a CPU every thread of the process counts: nothing else
    may run in it.
    """
    import torch

    where = torch.device(device)
    if where.type == "cpu":
        return _of_process(build)
    if where.type in ("cuda", "xpu"):
        return _of_allocator(build, torch.get_device_module(where), where)
    return Peak(None, reason=f"the allocator of {where.type} keeps no peak")


def _of_allocator(build: Callable[[], Call], module: Any, device: Any) -> Peak:
    """By the peak that the caching allocator of a device keeps."""

    def settle() -> None:
        gc.collect()
        module.synchronize(device)
        module.empty_cache()

    _touch(device)
    settle()
    allocated, reserved = module.memory_allocated(device), module.memory_reserved(device)
    call = build()
    settle()
    module.reset_peak_memory_stats(device)
    call()
    module.synchronize(device)
    return Peak(
        module.max_memory_allocated(device) - allocated,
        module.max_memory_reserved(device) - reserved,
        method="max_memory_allocated",
    )


def _of_process(build: Callable[[], Call]) -> Peak:
    """By the high-water mark of this process's memory, which Linux can take back to what is resident now.

    Freed memory that the C library keeps for later is in it, as it is in what the system sees.
    """
    if not _STATUS.exists():
        return Peak(None, reason="only Linux tells how much memory a process took at most")
    _touch("cpu")
    _give_back()
    before = _status("VmRSS")
    call = build()
    _give_back()
    try:
        _CLEAR_REFS.write_text(_RESET_HIGH_WATER)
    except OSError as error:
        return Peak(None, reason=f"the high-water mark cannot be reset: {error}")
    call()
    return Peak(_status("VmHWM") - before, method="high-water mark of the process")


def _touch(device: Any) -> None:
    """What the first product and its backward load and keep (a library, its workspaces) is no candidate's own."""
    import torch

    with torch.enable_grad():
        x = torch.ones(8, 8, device=device, requires_grad=True)
        (x @ x).sum().backward()


def _give_back() -> None:
    """Give freed memory back to the system: glibc keeps it, and what then lands in it would not show."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(key: str) -> int:
    """Bytes that /proc/self/status tells under a key."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {key}")
