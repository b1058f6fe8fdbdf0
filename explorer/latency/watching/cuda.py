"""What disturbs an NVIDIA device: a drop of its clock, throttling, other processes that compute on it."""

from __future__ import annotations

from explorer.latency.watching.nvml import Nvml

# These come from heat or the supply, whatever is being run. At its own power cap, however, many a device stays
# for as long as it works (an RTX 3090: https://github.com/ashalliants/ninfer-3090/pull/72). That is its speed, and
# without those rounds there might be none (https://github.com/NVIDIA/nvbench/issues/231).
_SPOILING = frozenset(
    {"hardware slowdown", "thermal slowdown by the driver", "thermal slowdown by the hardware", "power brake"}
)
_OWN_DOING = frozenset({"power cap", "clocks set by the user"})


class CudaGuard:
    """Disturbed: throttled by heat or supply, another process on the device, or a clock under 75 % of its full one.

    A low clock is no disturbance where the device's own power cap or the user's setting explains it. All is read right
    after the sample: before the first kernel, and a moment after the last, the clock of an idle device is low.

    Processes are counted, not named: inside a container their ids are the host's, so that our own looks like a
    stranger's (https://github.com/NVIDIA/nvidia-docker/issues/1483). One of them is this one.
    """

    name = "NVML"

    def __init__(self, nvml: Nvml, *, lowest: float = 0.75) -> None:
        self.nvml, self.lowest = nvml, lowest
        self.full_mhz = nvml.full_clock_mhz("SM")

    def start(self) -> None:
        """Nothing is counted from here on: what there is to see is seen at the end."""

    def stop(self) -> str | None:
        clock, reasons = self.nvml.clock_mhz("SM"), self.nvml.reasons() or ()
        spoiling = [reason for reason in reasons if reason in _SPOILING]
        if spoiling:
            return f"throttled: {', '.join(spoiling)}"
        others = (self.nvml.processes() or 0) - 1
        if others > 0:
            return "another process on the device" if others == 1 else f"{others} other processes on the device"
        if clock is None or self.full_mhz is None or _OWN_DOING & set(reasons):
            return None
        return f"SM clock {clock} of {self.full_mhz} MHz" if clock < self.lowest * self.full_mhz else None
