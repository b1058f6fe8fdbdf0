"""What a module keeps in float32 whatever dtype the model is put into."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class KeepsFloat32(nn.Module):
    """A module some of whose own parameters and buffers `model.to(torch.bfloat16)` or `.half()` must not round.

    wide: their names. They are made in at least float32 by the constructor (`wide_dtype`); here they stay so.
    """

    wide: ClassVar[tuple[str, ...]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        found = {name: tensor for name in self.wide if (tensor := getattr(self, name, None)) is not None}
        kept = {name: tensor.detach() for name, tensor in found.items()}
        super()._apply(fn, recurse)
        for name, before in kept.items():
            after = getattr(self, name)
            wanted = wide_dtype(after.dtype)
            if after.dtype != wanted:
                # Not a cast back: fn has rounded already.
                after.data = before.to(after.device, wanted)
        return self


def wide_dtype(dtype: torch.dtype | None = None) -> torch.dtype:
    """float32, or the dtype (of new parameters, where none is given) where that is wider."""
    return torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """For products on the device of x that must not be rounded to the dtype of a surrounding `torch.autocast`."""
    kind = x.device.type
    # meta has none, and torch refuses to be asked about it.
    acts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if acts else nullcontext()
