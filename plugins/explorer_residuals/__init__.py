"""Residual connections: how the output of a sublayer joins the stream."""

from collections.abc import Callable, Mapping

from explorer import Residual, hookimpl
from explorer_residuals.add import Add
from explorer_residuals.deepnorm import DeepNorm
from explorer_residuals.none import NoResidual


@hookimpl
def register_residuals() -> Mapping[str, Callable[..., Residual]]:
    return {"add": Add, "deepnorm": DeepNorm, "none": NoResidual}
