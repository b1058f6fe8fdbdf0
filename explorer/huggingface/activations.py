"""Activations: the names of configs and ours, of plain feed-forwards and of gated ones."""

from __future__ import annotations

from collections.abc import Mapping

from explorer.huggingface.reader import ConfigReader

_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python_tanh", "gelu_accurate")
PLAIN: Mapping[str, str] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    **dict.fromkeys(_TANH, "gelu_tanh"),
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "mish": "mish",
}
GATED: Mapping[str, str] = {
    "silu": "swiglu",
    "swish": "swiglu",
    "gelu": "geglu",
    "gelu_python": "geglu",
    **dict.fromkeys(_TANH, "geglu_tanh"),
    "relu": "reglu",
    "sigmoid": "glu",
    "linear": "bilinear",
}


def plain(config: ConfigReader, name: str, default: str) -> str:
    """Of a feed-forward with one map up."""
    return config.choice(name, of=PLAIN, default=default)


def gated(config: ConfigReader, name: str = "hidden_act", default: str = "silu") -> str:
    """Of a feed-forward with a gate."""
    return config.choice(name, of=GATED, default=default)
