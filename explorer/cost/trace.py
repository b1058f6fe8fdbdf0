"""Runs a module on meta and writes down each operator that it calls, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from types import FunctionType, TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.cost.free import family
from explorer.cost.fused import FUSED, call_fused, masked_by_hand
from explorer.cost.products import Products
from explorer.cost.rows import Ledger
from explorer.cost.rules import RULES


class Trace(Ledger):
    """`with Trace() as trace: module(x).sum().backward()` collects a row for each operator call, on meta tensors.

    Fused functions are one row each way, seen by name; everything else is a row for each operator below autograd,
    so that views, `@`, einsum and modules all come down to the same products. Compiled modules run eagerly.
    """

    def __init__(self) -> None:
        super().__init__()
        self._modes = ExitStack()

    def __enter__(self) -> Trace:
        self._modes.enter_context(torch.compiler.set_stance("force_eager"))
        self._modes.enter_context(_Functions(self))
        self._modes.enter_context(_Operators(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._modes.close()


class _Functions(TorchFunctionMode):
    """Sees what a module calls by name, before autograd takes it apart."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in FUSED:
            return call_fused(self._ledger, func, args, kwargs)
        if func not in _ENTERED:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward and (reason := masked_by_hand(args, kwargs)):
            self._ledger.record("multi_head_attention_forward", Products(0, None, reason))
        with self:
            return _entered(func)(*args, **kwargs)


_ENTERED = {
    F.multi_head_attention_forward,
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.autograd.grad,
}
"""Functions of torch that call modules, fused functions or checkpoints again: a function mode must be on inside."""


@cache
def _entered(func: FunctionType) -> FunctionType:
    """The same function, except that it does not ask a function mode to take it over: the mode has just done so."""
    asks = {name: _nobody for name in func.__globals__ if name.startswith("has_torch_function")}
    twin = FunctionType(func.__code__, {**func.__globals__, **asks}, func.__name__, func.__defaults__, func.__closure__)
    twin.__kwdefaults__ = func.__kwdefaults__
    return twin


def _nobody(*tensors: Any) -> bool:
    return False


class _Operators(TorchDispatchMode):
    """Sees each operator below autograd, in backward too."""

    supports_higher_order_operators = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            self._ledger.record_unknown(f"{func.namespace}::{func.name()}")
            return func(*args, **kwargs)
        if is_composite(func):
            # Without autograd (inference mode) torch hands over the whole, not its parts.
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self._write_down(func, args, kwargs, out)
        return out

    def _write_down(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        name = operator_name(func)
        if name in RULES:
            self._ledger.record(name, RULES[name](named_arguments(func, args, kwargs), out))
        elif family(func) is not None:
            self._ledger.record_free(name)
        else:
            self._ledger.record_unknown(name)


@cache
def is_composite(func: OpOverload) -> bool:
    """Whether torch composes this operator of others that a rule or a family may know."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@cache
def operator_name(func: OpOverload) -> str:
    """`aten::addmm` for `aten::addmm.out` and `aten::addmm_` as well."""
    name: str = func._schema.name
    return name.removesuffix("_") if name.removesuffix("_") in RULES else name


def named_arguments(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the operator's schema; what is left at its default is not there."""
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  (trailing defaults are dropped)
