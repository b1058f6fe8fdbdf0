"""Where calibrations lie: one file for each device and number of threads, in the user's cache folder."""

from __future__ import annotations

import json
import os
import platform
import re
from contextlib import suppress
from pathlib import Path

from explorer.errors import MeasureError
from explorer.latency.device import device_name
from explorer.prediction.calibration import Calibration

VARIABLE = "EXPLORER_CACHE"
"""The environment variable that names another cache folder."""


def cache_folder() -> Path:
    """EXPLORER_CACHE, else architecture-explorer in XDG_CACHE_HOME, else in ~/.cache."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "architecture-explorer"


def path_of(name: str, threads: int) -> Path:
    """The file of a device, by the name that a person calls it and that of the CPU which launches its kernels.

    Two machines may share a home.
    """
    host = device_name("cpu")
    both = name if name == host else f"{name} with {host}"
    if host in (platform.machine(), platform.processor()):  # the system does not tell which CPU it is
        both = f"{both} of {platform.node()}"
    plain = re.sub(r"[^a-z0-9]+", "-", both.lower()).strip("-") or "device"
    return cache_folder() / "calibrations" / f"{plain}-{threads}threads.json"


def save(calibration: Calibration) -> Path:
    """Write a calibration to its place, in one step; returns the file.

    Dtypes that only the one before has are kept, where torch is the same. Raises: MeasureError where it cannot be
    written.
    """
    path = path_of(calibration.name, calibration.threads)
    with suppress(MeasureError):  # what cannot be read is replaced
        calibration = calibration.beside(stored(calibration.name, calibration.threads))
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(calibration.to_dict(), indent=1), encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        reason = f"{error.strerror}; {VARIABLE} names another folder"
        raise MeasureError(f"{path}: the calibration cannot be written: {reason}") from error
    return path


def stored(name: str, threads: int) -> Calibration | None:
    """The calibration of a device, None where there is none.

    Raises: MeasureError for a file that cannot be read as one.
    """
    path = path_of(name, threads)
    try:
        return Calibration.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, MeasureError) as error:
        raise MeasureError(
            f"{path}: the calibration cannot be read: {error}; run `explorer calibrate` again"
        ) from error
