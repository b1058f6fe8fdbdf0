"""A function as it runs where nobody asked to take it over."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any


@cache
def entered(func: Callable[..., Any]) -> Callable[..., Any]:
    """The same Python function, except that it does not ask a function mode to take it over: the mode has just done so.

    What it calls is still seen by the modes that are on.
    """
    assert isinstance(func, FunctionType), func
    asks = {name: _nobody for name in func.__globals__ if name.startswith("has_torch_function")}
    twin = FunctionType(func.__code__, {**func.__globals__, **asks}, func.__name__, func.__defaults__, func.__closure__)
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _nobody(*tensors: Any) -> bool:
    return False
