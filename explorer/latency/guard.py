"""Watching for what else uses the device: a number taken meanwhile says nothing about the block."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

from explorer.errors import MeasureError
from explorer.latency.watching.cuda import CudaGuard
from explorer.latency.watching.nvml import open_nvml
from explorer.latency.watching.pressure import PressureGuard, keeps_account
from explorer.latency.watching.switches import SwitchesGuard

_DEVICE = "device"
"""The regime that is timed by the device alone."""


class Guard(Protocol):
    """Watches one sample after the other; replace it by one that knows in tests."""

    @property
    def name(self) -> str:
        """What is watched."""

    def start(self) -> None:
        """A sample begins."""

    def stop(self) -> str | None:
        """What disturbed the time since `start`, None if nothing was seen."""


@dataclass(frozen=True)
class NoGuard:
    """Sees nothing, and says why nothing is watched."""

    reason: str

    @property
    def name(self) -> str:
        return f"none: {self.reason}"

    def start(self) -> None:
        """Nothing to begin."""

    def stop(self) -> None:
        """Nothing seen."""


@dataclass(frozen=True)
class HostAndDevice:
    """Two guards at once: of the CPUs that launch the work, and of the device that does it."""

    host: Guard
    device: Guard

    @property
    def name(self) -> str:
        return f"{self.host.name} (except in the regime {_DEVICE}); {self.device.name}"

    def start(self) -> None:
        self.host.start()
        self.device.start()

    def stop(self) -> str | None:
        host, device = self.host.stop(), self.device.stop()  # both: both have begun
        return host or device


def watching(guard: Guard, regime: str) -> Guard:
    """What of a guard watches a regime: in `device` the host launches once for a whole sample, and is not timed."""
    return guard.device if regime == _DEVICE and isinstance(guard, HostAndDevice) else guard


def guard_for(device: str) -> Guard:
    """The guard of a device as `resolve_device` gives it: the host's CPUs, and NVML beside them on CUDA.

    The host counts there too: `latency` and what is bound by launching are times of the host (see `watching`).
    """
    if device.partition(":")[0] != "cuda":
        return _host_guard()
    return HostAndDevice(_host_guard(), _device_guard(device))


def _device_guard(device: str) -> Guard:
    try:
        return CudaGuard(open_nvml(device))
    except MeasureError as error:
        return NoGuard(str(error))


def _host_guard() -> Guard:
    if keeps_account():
        return PressureGuard()
    if find_spec("resource") is None:
        return NoGuard("this system tells neither CPU pressure nor context switches")
    return SwitchesGuard()
