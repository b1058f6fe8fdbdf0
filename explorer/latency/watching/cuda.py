"""What disturbs an NVIDIA device: a drop of its clock, throttling, other processes that compute on it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from explorer.latency.watching.nvml import Nvml

# These come from heat or the supply, whatever is being run. At its own power cap, however, many a device stays
# for as long as it works (an RTX 3090: https://github.com/ashalliants/ninfer-3090/pull/72). That is its speed, and
# without those rounds there might be none (https://github.com/NVIDIA/nvbench/issues/231).
_SPOILING = frozenset(
    {"hardware slowdown", "thermal slowdown by the driver", "thermal slowdown by the hardware", "power brake"}
)
_OWN_DOING = frozenset({"power cap", "clocks set by the user"})
# Processes are sampled a few times a second at most, and told of late (https://github.com/XuehaiPan/nvitop/issues/83).
_LOOK_BACK_S = 2.0
_MOST_PERCENT = 10


class CudaGuard:
    """Disturbed: throttled by heat or supply, others that use the device, or a clock under 75 % of its full one.

    A low clock is no disturbance where the device's own power cap or the user's setting explains it. Clock and reasons
    are read right after the sample: before the first kernel, and a moment after the last, an idle device has a low one.

    Others use the device where kernels of other processes ran for 10 % of the last 2 s or more; those that only have it
    open disturb nobody. Where the device does not tell such shares, having it open counts. In a container process ids
    are the host's, so that our own may look like a stranger's (https://github.com/NVIDIA/nvidia-docker/issues/1483): if
    it is not among those that are busy, the busiest is taken for ours. `now` in seconds since the epoch.
    """

    name = "NVML"

    def __init__(self, nvml: Nvml, *, lowest: float = 0.75, now: Callable[[], float] = time.time) -> None:
        self.nvml, self.lowest, self.now = nvml, lowest, now
        self.full_mhz = nvml.full_clock_mhz("SM")

    def start(self) -> None:
        """Nothing is counted from here on: what there is to see is seen at the end."""

    def stop(self) -> str | None:
        clock, reasons = self.nvml.clock_mhz("SM"), self.nvml.reasons() or ()
        spoiling = [reason for reason in reasons if reason in _SPOILING]
        if spoiling:
            return f"throttled: {', '.join(spoiling)}"
        others = self._others()
        if others or clock is None or self.full_mhz is None or _OWN_DOING & set(reasons):
            return others
        return f"SM clock {clock} of {self.full_mhz} MHz" if clock < self.lowest * self.full_mhz else None

    def _others(self) -> str | None:
        busy = self.nvml.busy(int(1e6 * (self.now() - _LOOK_BACK_S)))
        if busy is None:
            others = (self.nvml.processes() or 0) - 1
            return f"others that have the device open: {others}" if others > 0 else None
        own = os.getpid() if os.getpid() in busy else max(busy, key=busy.__getitem__, default=None)
        percent = sum(share for pid, share in busy.items() if pid != own)
        return f"others used the device in {percent} % of the time" if percent >= _MOST_PERCENT else None
