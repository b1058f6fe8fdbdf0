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
class Together:
    """Several guards at once: the first that saw something says what."""

    guards: tuple[Guard, ...]

    @property
    def name(self) -> str:
        return "; ".join(guard.name for guard in self.guards)

    def start(self) -> None:
        for guard in self.guards:
            guard.start()

    def stop(self) -> str | None:
        reasons = [guard.stop() for guard in self.guards]  # all of them: each has begun
        return next((reason for reason in reasons if reason is not None), None)


def guard_for(device: str) -> Guard:
    """The guard of a device as `resolve_device` gives it: the host's CPUs, and NVML beside them on CUDA.

    The host counts there too: `latency` and what is bound by launching are times of the host.
    """
    if device.partition(":")[0] != "cuda":
        return _host_guard()
    return Together((_host_guard(), _device_guard(device)))


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
