"""The clocks of a device now, for the record: they are never set, only read."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from explorer.errors import MeasureError
from explorer.latency.watching.nvml import open_nvml

_CPUINFO = Path("/proc/cpuinfo")


def clocks(device: str) -> dict[str, Any]:
    """How fast the device's clocks run at this moment; what is not known is None, and `unknown` says why.

    CPU: `cpu_mhz`, the mean over its cores (a virtual machine may show a constant). CUDA: `sm_mhz`, `memory_mhz`,
    `temperature_c` and `throttle`, the reasons why the clocks are not higher.
    """
    kind = device.partition(":")[0]
    if kind == "cpu":
        mhz = _cpu_mhz()
        return {"cpu_mhz": mhz, "unknown": f"{_CPUINFO} names no clock" if mhz is None else None}
    if kind == "cuda":
        return _cuda(device)
    return {"unknown": f"nothing here reads the clocks of {kind}"}


def _cuda(device: str) -> dict[str, Any]:
    try:
        nvml = open_nvml(device)
    except MeasureError as error:
        return {**dict.fromkeys(("sm_mhz", "memory_mhz", "temperature_c", "throttle")), "unknown": str(error)}
    reasons = nvml.reasons()
    found = {
        "sm_mhz": nvml.clock_mhz("SM"),
        "memory_mhz": nvml.clock_mhz("MEM"),
        "temperature_c": nvml.temperature_c(),
        "throttle": None if reasons is None else list(reasons),
    }
    missing = [name for name, value in found.items() if value is None]
    return {**found, "unknown": f"the device does not tell {', '.join(missing)}" if missing else None}


def _cpu_mhz() -> float | None:
    if not _CPUINFO.exists():
        return None
    lines = (line.partition(":") for line in _CPUINFO.read_text(errors="replace").splitlines())
    found = [float(value) for key, _, value in lines if key.strip() == "cpu MHz"]
    return round(fmean(found), 1) if found else None
