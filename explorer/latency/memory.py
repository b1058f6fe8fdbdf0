"""Whether something fits: free bytes of a device."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# A cgroup's limit binds before the machine's memory does; v2, then v1. "max" and huge numbers mean no limit.
_CGROUP = Path("/sys/fs/cgroup")
_CGROUPS = (
    (_CGROUP / "memory.max", _CGROUP / "memory.current"),
    (_CGROUP / "memory/memory.limit_in_bytes", _CGROUP / "memory/memory.usage_in_bytes"),
)
# Files that the kernel drops when memory is wanted count as used; v2 calls them the first name, v1 the second, where
# they are of all groups below. The tools that come with containers subtract the same.
_DROPPED = ("inactive_file", "total_inactive_file")


def free_bytes(device: str) -> int | None:
    """Bytes that can be allocated now without pushing anything out, or None where the system does not say."""
    import torch

    kind = torch.device(device).type
    if kind == "cpu":
        return _free_main_memory()
    if kind == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return None


def _free_main_memory() -> int | None:
    limits = [_available(), *(_left(limit, used) for limit, used in _CGROUPS)]
    return min((limit for limit in limits if limit is not None), default=None)


def _available() -> int | None:
    if not _MEMINFO.exists():
        return None
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left(limit: Path, used: Path) -> int | None:
    if not (limit.exists() and used.exists()):
        return None
    words = limit.read_text().strip()
    if not words.isdigit():
        return None
    return int(words) - max(0, int(used.read_text()) - _droppable(used.with_name("memory.stat")))


def _droppable(stat: Path) -> int:
    if not stat.exists():
        return 0
    found = dict(line.split() for line in stat.read_text().splitlines())
    return max((int(found[name]) for name in _DROPPED if name in found), default=0)
