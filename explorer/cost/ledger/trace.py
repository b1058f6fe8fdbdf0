"""Runs a module on meta and writes down each operator that it calls, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.cost.ledger.causal_bias import causal_biases, with_rule
from explorer.cost.ledger.custom import cost_of, refuse
from explorer.cost.ledger.entered import entered
from explorer.cost.ledger.fused import FUSED, masked_by_hand
from explorer.cost.ledger.kernels import REPLACED
from explorer.cost.ledger.ledger import Ledger
from explorer.cost.ledger.one_call import call_fused
from explorer.cost.ledger.operators import is_composite, named_arguments, operator
from explorer.cost.ledger.products import NO_PRODUCTS
from explorer.cost.ledger.traffic import everything, tensors
from explorer.cost.ledger.work import NOTHING
from explorer.registry.registry import CostRule


class Trace(Ledger):
    """`with Trace() as trace: module(x).sum().backward()` collects a row for each operator call.

    Fused functions are one row each way, seen by name; everything else is a row for each operator below autograd,
    so that views, `@`, einsum and modules all come down to the same products. Compiled modules run eagerly. Meant for
    meta tensors; real ones keep their values and gradients and give the same rows.

    weights, cache: tensors whose bytes are counted as such, see `Ledger`. rules: of plugins, for their own operators.

    Inside it PluginError is raised for such a rule that fails, or that is not the only one for its operator.
    """

    def __init__(
        self,
        weights: Iterable[Tensor] = (),
        cache: Iterable[Tensor] | Set[int] = (),
        rules: Mapping[str, CostRule] | None = None,
    ) -> None:
        super().__init__(weights, cache)
        self._rules = rules or {}
        self._modes = ExitStack()

    def __enter__(self) -> Trace:
        self._modes.enter_context(torch.compiler.set_stance("force_eager"))
        self._modes.enter_context(causal_biases())
        self._modes.enter_context(_Functions(self))
        self._modes.enter_context(_Operators(self, self._rules))
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
        if func not in _KNOWN:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            func, args, kwargs = with_rule(args, kwargs)
        if func in FUSED:
            return call_fused(self._ledger, func, args, kwargs)
        if func in REPLACED:
            return REPLACED[func](*args, **kwargs)
        if func in _BACKWARDS:
            with self, self._ledger.nested():
                return entered(func)(*args, **kwargs)
        if reason := masked_by_hand(args, kwargs):
            self._ledger.note("multi_head_attention_forward", reason)
        with self:
            return entered(func)(*args, **kwargs)


_BACKWARDS = {torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad}
"""Functions of torch that call hooks, custom functions and checkpoints: a function mode must be on inside."""
_KNOWN = frozenset((*FUSED, *REPLACED, *_BACKWARDS, F.multi_head_attention_forward))


class _Operators(TorchDispatchMode):
    """Sees each operator below autograd, in backward too."""

    supports_higher_order_operators = True

    def __init__(self, ledger: Ledger, rules: Mapping[str, CostRule]) -> None:
        super().__init__()
        self._ledger = ledger
        self._rules = rules

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if self._ledger.paused:
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):
            out = func(*args, **kwargs)
            access = self._ledger.access(everything({"args": args, "kwargs": kwargs}, out))
            self._ledger.record(f"{func.namespace}::{func.name()}", "unknown", access=access, counted=False)
            return out
        if is_composite(func):
            # Without autograd (inference mode) torch hands over the whole, not its parts.
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        self._write_down(func, args, kwargs, out)
        return out

    def _write_down(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        known, ledger = operator(func), self._ledger
        rule = self._rules.get(known.name)
        if rule and known.kind != "unknown":
            refuse(rule)
        if known.kind in ("view", "check"):
            ledger.record(known.name, known.kind)
            return
        given = named_arguments(func, args, kwargs)
        ledger.make(out, tensors(given))
        if known.kind == "allocation":
            ledger.record(known.name, known.kind)
            return
        moved = known.moved(given, out)
        if rule:
            products, work, moved = cost_of(rule, given, moved, out)
            ledger.record(known.name, "custom", products, work, ledger.access(moved))
            return
        products = known.products(given, out) if known.products else NO_PRODUCTS
        work = known.work(given, out) if known.work else NOTHING
        access = ledger.access(moved)
        ledger.record(known.name, known.kind, products, work, access, counted=known.kind != "unknown")
