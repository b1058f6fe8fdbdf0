"""What every norm and sublayer promises: an output of its input's shape and dtype.

A broken promise would not stop a pass on meta (shapes broadcast, dtypes are not compared): the count would be wrong.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from explorer.errors import PluginError
from explorer.registry.chosen import Chosen


def keep_promise(chosen: Chosen, x: Tensor, y: Any) -> None:
    """Raises: PluginError where a component that was given x returns another shape or dtype."""
    wanted, came = _described(x), _described(y)
    if wanted != came:
        component = chosen.component
        raise PluginError(
            f"{component.kind.name} '{chosen.short()}' of {component.origin} ({component.package}): "
            f"forward must return {wanted}, as its input is, not {came}"
        )


def _described(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
