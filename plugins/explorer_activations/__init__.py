"""Activations: pointwise functions of one tensor, or of a gate and an up-projection."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_activations.bilinear import Bilinear
from explorer_activations.geglu import GeGLU
from explorer_activations.geglu_tanh import GeGLUTanh
from explorer_activations.gelu import GELU
from explorer_activations.gelu_tanh import GELUTanh
from explorer_activations.glu import GLU
from explorer_activations.mish import Mish
from explorer_activations.quick_gelu import QuickGELU
from explorer_activations.reglu import ReGLU
from explorer_activations.relu import ReLU
from explorer_activations.relu2 import ReLU2
from explorer_activations.sigmoid import Sigmoid
from explorer_activations.silu import SiLU
from explorer_activations.situ import SiTU
from explorer_activations.situ_glu import SiTUGLU
from explorer_activations.swiglu import SwiGLU
from explorer_activations.swiglu_clamped import ClampedSwiGLU
from explorer_activations.tanh import Tanh


@hookimpl
def register_activations() -> Mapping[str, Callable[..., nn.Module]]:
    return {
        "bilinear": Bilinear,
        "geglu": GeGLU,
        "geglu_tanh": GeGLUTanh,
        "gelu": GELU,
        "gelu_tanh": GELUTanh,
        "glu": GLU,
        "mish": Mish,
        "quick_gelu": QuickGELU,
        "reglu": ReGLU,
        "relu": ReLU,
        "relu2": ReLU2,
        "sigmoid": Sigmoid,
        "silu": SiLU,
        "situ": SiTU,
        "situ_glu": SiTUGLU,
        "swiglu": SwiGLU,
        "swiglu_clamped": ClampedSwiGLU,
        "tanh": Tanh,
    }
