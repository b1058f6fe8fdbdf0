"""What to make of an exception in a pass on meta: a forward that needs values, or a plugin's fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from explorer.errors import ExplorerError, PluginError
from explorer.registry.blame import told_briefly

# What torch says where an operator wants to read values, which meta tensors do not have.
_NEEDS_VALUES = ("meta tensor", "meta device", "data-dependent", "datadependent", "aten::_local_scalar_dense")


@dataclass
class Trouble:
    """Why a pass could not be observed; empty as long as it can."""

    reason: str = ""


@contextmanager
def understood(label: str) -> Iterator[Trouble]:
    """Inside, a forward that needs values leaves its reason, and any other failure becomes a PluginError.

    Raises: PluginError that says where in whose code a pass failed.
    """
    trouble = Trouble()
    try:
        yield trouble
    except ExplorerError:
        raise
    except (Exception, SystemExit) as error:
        if not _needs_values(error):
            raise PluginError(f"{label} cannot be run: {told_briefly(error)}") from error
        trouble.reason = f"it needs values and cannot be run on meta: {told_briefly(error)}"


def _needs_values(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, NotImplementedError | RuntimeError) and any(word in text for word in _NEEDS_VALUES)
