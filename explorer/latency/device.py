"""The devices of this machine: their names, and what else decides how fast they are."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from explorer.errors import UsageError, did_you_mean

_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA = Path("/proc/driver/nvidia/version")


def resolve_device(text: str | None) -> str:
    """The device that `--device` names, or this machine's accelerator, or its CPU where there is none.

    Raises UsageError, listing what this machine has, for anything else.
    """
    import torch

    devices = available_devices()
    if text is None:
        return devices[min(1, len(devices) - 1)].partition(":")[0]
    try:
        device = torch.device(text)
    except RuntimeError:
        raise UsageError(_no_such_device(text, devices, did_you_mean(text, devices))) from None
    if device.type not in {known.partition(":")[0] for known in devices}:
        raise UsageError(_no_such_device(text, devices))
    if device.index is not None and str(device) not in devices and str(device) != "cpu:0":
        raise UsageError(_no_such_device(text, devices))
    return "cpu" if device.type == "cpu" else str(device)


def available_devices() -> tuple[str, ...]:
    """`cpu`, then every accelerator of this machine, as `cuda:0`."""
    import torch

    if not torch.accelerator.is_available():
        return ("cpu",)
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None, "torch.accelerator.is_available() means that there is one"
    return ("cpu", *(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())))


def device_name(device: str) -> str:
    """What a person calls it: "NVIDIA H200", or the CPU's model."""
    import torch

    where = torch.device(device)
    if where.type == "cpu":
        return _cpu_model()
    if where.type == "cuda":
        return torch.cuda.get_device_name(where)
    return f"{where.type} of {platform.node() or 'this machine'}"


def environment(device: str) -> dict[str, Any]:
    """What the numbers depend on besides the block: versions, threads, precision, kernels attention may use, date."""
    import torch

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "device": device,
        "device_name": device_name(device),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "driver": _nvidia_driver() if torch.device(device).type == "cuda" else None,
        "precision": _precision(),
        "sdpa_backends": _sdpa_backends(),
    }


def _precision() -> dict[str, Any]:
    import torch

    return {
        "float32_matmul": torch.get_float32_matmul_precision(),
        "cuda_matmul_fp32": torch.backends.cuda.matmul.fp32_precision,
        "cudnn_conv_fp32": torch.backends.cudnn.conv.fp32_precision,  # type: ignore[attr-defined]
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def _sdpa_backends() -> dict[str, bool]:
    """Which kernels `scaled_dot_product_attention` may choose from (not which it chose)."""
    import torch

    return {
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
    }


def _cpu_model() -> str:
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "unknown CPU"


def _nvidia_driver() -> str | None:
    """The driver's version on Linux: the first word of its line that is digits and dots."""
    if not _NVIDIA.exists():
        return None
    words = _NVIDIA.read_text().splitlines()[0].split()
    return next((word for word in words if "." in word and word.replace(".", "").isdigit()), None)


def _no_such_device(text: str, devices: tuple[str, ...], guess: str | None = None) -> str:
    return f"device {text!r} is not on this machine; it has: {', '.join(devices)}" + (f"; {guess}" if guess else "")
