"""Residual connections: how the output of a sublayer joins the stream."""

from collections.abc import Callable, Mapping

from explorer import Residual, hookimpl
from explorer_residuals.add import Add
from explorer_residuals.attnres import AttnRes
from explorer_residuals.block_attnres import BlockAttnRes
from explorer_residuals.deepnorm import DeepNorm
from explorer_residuals.highway import Highway
from explorer_residuals.hyper_connections import HyperConnections
from explorer_residuals.layerscale import LayerScale
from explorer_residuals.mhc import ManifoldHyperConnections
from explorer_residuals.none import NoResidual
from explorer_residuals.rezero import ReZero
from explorer_residuals.scaled import Scaled
from explorer_residuals.skipinit import SkipInit


@hookimpl
def register_residuals() -> Mapping[str, Callable[..., Residual]]:
    return {
        "add": Add,
        "attnres": AttnRes,
        "block_attnres": BlockAttnRes,
        "deepnorm": DeepNorm,
        "highway": Highway,
        "hyper_connections": HyperConnections,
        "layerscale": LayerScale,
        "mhc": ManifoldHyperConnections,
        "none": NoResidual,
        "rezero": ReZero,
        "scaled": Scaled,
        "skipinit": SkipInit,
    }
