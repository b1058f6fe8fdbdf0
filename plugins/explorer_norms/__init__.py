"""Norms: functions of one vector, (..., dim) -> (..., dim)."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_norms.layernorm import LayerNorm
from explorer_norms.none import NoNorm
from explorer_norms.rmsnorm import RMSNorm


@hookimpl
def register_norms() -> Mapping[str, Callable[..., nn.Module]]:
    return {"layernorm": LayerNorm, "rmsnorm": RMSNorm, "none": NoNorm}
