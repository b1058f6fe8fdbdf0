"""How large the last cache before the main memory is: what is larger than it comes from the memory each time."""

from __future__ import annotations

import os
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_cache_bytes(device: str) -> int | None:
    """Bytes of the last-level cache that a device's work can fill, or None where the system does not say.

    CPU: all caches of the highest level that the CPUs of this process reach, as Linux lists them in /sys. CUDA: the L2
    cache, as `torch.cuda.get_device_properties` tells it; a cache behind it (MI300X) is not in that number.
    """
    import torch

    kind = torch.device(device).type
    if kind == "cpu":
        return _of_cpus()
    if kind == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size) or None
    return None


def _of_cpus() -> int | None:
    """Caches that several CPUs share are listed with each of them, and counted once."""
    folders = [folder for cpu in _usable() for folder in (_CPUS / f"cpu{cpu}/cache").glob("index*")]
    found = {(level, shared): size for level, shared, size in filter(None, map(_cache, folders))}
    highest = max((level for level, _ in found), default=None)
    return sum(size for (level, _), size in found.items() if level == highest) or None


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cache(folder: Path) -> tuple[int, str, int] | None:
    """Level, the CPUs that share it, bytes; None for a cache of instructions and where something is not told."""
    try:
        kind, level, size = ((folder / name).read_text().strip() for name in ("type", "level", "size"))
    except OSError:
        return None
    shared = folder / "shared_cpu_list"
    if kind == "Instruction" or size[-1:] not in _UNITS:
        return None
    sharing = shared.read_text().strip() if shared.exists() else str(folder)
    return int(level), sharing, int(size[:-1]) * _UNITS[size[-1]]
