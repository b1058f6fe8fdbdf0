"""Norms: functions of one vector, (..., dim) -> (..., dim). `batchnorm`, which is not, stands as a counter-example."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_norms.batchnorm import BatchNorm
from explorer_norms.dyt import DyT
from explorer_norms.l2norm import L2Norm
from explorer_norms.layernorm import LayerNorm
from explorer_norms.none import NoNorm
from explorer_norms.rmsnorm import RMSNorm
from explorer_norms.scalenorm import ScaleNorm


@hookimpl
def register_norms() -> Mapping[str, Callable[..., nn.Module]]:
    return {
        "batchnorm": BatchNorm,
        "dyt": DyT,
        "l2norm": L2Norm,
        "layernorm": LayerNorm,
        "none": NoNorm,
        "rmsnorm": RMSNorm,
        "scalenorm": ScaleNorm,
    }
