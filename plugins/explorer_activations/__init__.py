"""Activations: pointwise functions of one tensor, or of a gate and an up-projection."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_activations.geglu import GeGLU
from explorer_activations.geglu_tanh import GeGLUTanh
from explorer_activations.gelu import GELU
from explorer_activations.gelu_tanh import GELUTanh
from explorer_activations.glu import GLU
from explorer_activations.reglu import ReGLU
from explorer_activations.relu import ReLU
from explorer_activations.silu import SiLU
from explorer_activations.swiglu import SwiGLU
from explorer_activations.tanh import Tanh


@hookimpl
def register_activations() -> Mapping[str, Callable[..., nn.Module]]:
    return {
        "geglu": GeGLU,
        "geglu_tanh": GeGLUTanh,
        "gelu": GELU,
        "gelu_tanh": GELUTanh,
        "glu": GLU,
        "reglu": ReGLU,
        "relu": ReLU,
        "silu": SiLU,
        "swiglu": SwiGLU,
        "tanh": Tanh,
    }
