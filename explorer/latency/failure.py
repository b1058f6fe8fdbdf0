"""What goes wrong with one candidate, kept as text so that the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from explorer.errors import ExplorerError, MeasureError, is_out_of_memory
from explorer.latency.raw import Failed

T = TypeVar("T")


class DeviceLost(MeasureError):
    """This process can use its device no longer, because of what one candidate did: the others need a fresh one."""


class CaptureLost(DeviceLost):
    """A capture into a CUDA graph failed halfway: only that regime of the candidate is to blame.

    Before 2.12 torch's allocator still took it to be under way, and failed later (https://github.com/pytorch/pytorch
    pull request 180395).
    """


@dataclass(frozen=True)
class Failure:
    """Why something has no times. details: the traceback as text: an exception would keep its tensors."""

    reason: str
    out_of_memory: bool = False
    details: str = ""

    def of(self, candidate: str, impl: str | None = None, regime: str | None = None) -> Failed:
        """The failure of a candidate, or of it in one implementation and regime."""
        return Failed(candidate, self.reason, impl, regime, self.out_of_memory, self.details)


def attempt(action: Callable[[], T], doing: str) -> T | Failure:
    """What the action returns, or the failure that its exception stands for; `doing` says during what.

    Our own errors speak for themselves. KeyboardInterrupt and SystemExit pass through, and DeviceLost, which is raised
    too where the failure leaves a CUDA device that answers nothing any more.
    """
    try:
        return action()
    except DeviceLost:
        raise
    except Exception as error:  # a plugin may raise anything, and costs one candidate
        failure = _failure(error, doing)
        _check_devices(failure)
        return failure


def _check_devices(failure: Failure) -> None:
    """Raises DeviceLost where CUDA is of no more use to this process, as after an illegal access or a device assertion.

    Such an error comes back from every later call ("sticky", https://docs.nvidia.com/cuda/cuda-runtime-api), so that
    each candidate that follows would be blamed for it.
    """
    import torch

    if not torch.cuda.is_initialized():
        return
    try:
        for index in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(index):  # no context on devices that nobody uses
                torch.cuda.synchronize(index)
    except Exception as error:  # torch.AcceleratorError, or a RuntimeError in its place
        raise DeviceLost(f"{failure.reason}; after that the device answers nothing in this process") from error


def _failure(error: Exception, doing: str) -> Failure:
    short = is_out_of_memory(error)
    details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    if isinstance(error, ExplorerError):
        return Failure(str(error), short, details)
    what = "out of memory" if short else type(error).__name__
    first_line = next(iter(str(error).splitlines()), "")
    return Failure(f"{what} while {doing}" + (f": {first_line}" if first_line else ""), short, details)
