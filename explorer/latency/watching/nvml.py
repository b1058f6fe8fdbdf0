"""NVIDIA's management library, through the optional package nvidia-ml-py: clocks, throttling, other processes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from explorer.errors import MeasureError

# Bits of nvmlDeviceGetCurrentClocksEventReasons, as nvml.h names them.
REASONS = {
    0x01: "idle",
    0x02: "clocks set by the user",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "clocks set by the display",
}


@dataclass(frozen=True)
class Nvml:
    """One device as the library sees it. Each question has the answer None where the device does not support it."""

    library: Any
    handle: Any

    def clock_mhz(self, kind: str) -> int | None:
        """The clock now; `kind` is `SM` or `MEM`."""
        return self._ask("nvmlDeviceGetClockInfo", self._kind(kind))

    def full_clock_mhz(self, kind: str) -> int | None:
        """The clock at which it is set to run, or the highest that it has where that cannot be asked."""
        return self._ask("nvmlDeviceGetApplicationsClock", self._kind(kind)) or self._ask(
            "nvmlDeviceGetMaxClockInfo", self._kind(kind)
        )

    def temperature_c(self) -> int | None:
        return self._ask("nvmlDeviceGetTemperature", self.library.NVML_TEMPERATURE_GPU)

    def reasons(self) -> tuple[str, ...] | None:
        """Why the clocks are not higher; empty where nothing holds them back."""
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")  # as it was called before 12
        return None if bits is None else tuple(word for bit, word in REASONS.items() if bits & bit)

    def processes(self) -> int | None:
        """How many processes have it open to compute, this one included, idle ones too."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else len({process.pid for process in found})

    def busy(self, since_us: int) -> dict[int, int] | None:
        """By process id, the share of time in percent that kernels of each process ran, where that was not 0.

        since_us: microseconds since the epoch. Older samples, and shares that some drivers make up, are left out
        (https://github.com/Syllo/nvtop/issues/110).
        """
        try:
            found = self.library.nvmlDeviceGetProcessUtilization(self.handle, since_us)
        except self.library.NVMLError as error:
            return {} if error.value in (self.library.NVML_SUCCESS, self.library.NVML_ERROR_NOT_FOUND) else None
        return {one.pid: one.smUtil for one in found if one.timeStamp > since_us and 0 < one.smUtil <= 100}

    def _kind(self, kind: str) -> int:
        return getattr(self.library, f"NVML_CLOCK_{kind}")

    def _ask(self, question: str, *details: int) -> Any:
        try:
            return getattr(self.library, question)(self.handle, *details)
        except self.library.NVMLError:  # not supported by this device, this driver or inside this container
            return None
        except AttributeError:  # a release that does not know the question
            return None


def open_nvml(device: str, uuid: Callable[[str], str] | None = None) -> Nvml:
    """The library, opened on the device that torch calls `cuda:N`.

    By the device's UUID, because the library numbers devices by bus and ignores CUDA_VISIBLE_DEVICES. Raises
    MeasureError, saying what to install or what it answered, where that cannot be had.
    """
    if find_spec("pynvml") is None:
        raise MeasureError('NVIDIA\'s management library is not at hand: pip install "architecture-explorer[gpu]"')
    library = importlib.import_module("pynvml")
    try:
        library.nvmlInit()
        return Nvml(library, library.nvmlDeviceGetHandleByUUID((uuid or _uuid)(device)))
    except library.NVMLError as error:
        raise MeasureError(f"NVIDIA's management library does not show {device}: {error}") from None
    except (AttributeError, TypeError) as error:  # releases before 12 lack functions, and take a UUID as bytes
        raise MeasureError(f"NVIDIA's management library is too old (nvidia-ml-py): {error}") from None


def _uuid(device: str) -> str:
    import torch

    if torch.version.hip is not None:
        raise MeasureError(f"{device} is an AMD device, which nothing watches yet")
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
