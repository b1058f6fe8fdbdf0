"""The modes that see functions by name and operators below them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from explorer.assembly.attend import attend
from explorer.assembly.grouped import grouped
from explorer.assembly.index_scores import index_scores
from explorer.assembly.visible import Sight, Visible
from explorer.cost.crosscheck import formulas
from explorer.cost.crosscheck.lengths import visible_pairs
from explorer.cost.ledger.causal_bias import CAUSAL, is_lower_right
from explorer.cost.ledger.entered import entered

Products = tuple[int, int | None]
"""FLOPs with all pairs, and those of hidden pairs, None where they are not known."""


class Watcher(Protocol):
    """What the modes report to."""

    def begin(self) -> bool: ...

    def end(self) -> None: ...

    def core(self, name: str, flops: int, hidden: int | None, out: Tensor) -> None: ...

    def operator(self, op: str, given: Mapping[str, Any], out: Any, flops: int | None, flow: Flow) -> None: ...


@dataclass(frozen=True)
class Flow:
    """The tensors that a call reads and makes; changes: whether it writes into one of those it reads.

    whole: the operator that was taken apart into it; None: a module called it itself.
    """

    reads: tuple[Tensor, ...]
    makes: tuple[Tensor, ...]
    changes: bool
    whole: str | None


class Functions(TorchFunctionMode):
    """Sees `attend` and its like by name; what they call themselves is left to `Operators`."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return entered(func)(*args, **kwargs)
        if func not in _CORES or not self._watcher.begin():
            return func(*args, **kwargs)
        try:
            out = func(*args, **kwargs)
        finally:
            self._watcher.end()
        name, products = _CORES[func]
        self._watcher.core(name, *products(out, *args, **kwargs), out)
        return out


def _attend(out: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Sight, **other: Any) -> Products:
    flops = formulas.attention(q.shape, k.shape, out.shape)
    return flops, None if other.get("mask") is not None else _hidden(flops, q.shape[-2], k.shape[-2], visible)


def _scaled_dot_product(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **other: Any,
) -> Products:
    T, S = query.shape[-2], key.shape[-2]
    flops = formulas.attention(query.shape, key.shape, out.shape)
    lower_right = is_lower_right(attn_mask, query, key)
    if lower_right:
        return flops, _hidden(flops, T, S, CAUSAL)
    if attn_mask is not None and lower_right is None:
        return flops, None
    is_causal |= lower_right is False
    # Aligned top-left: query i sees keys 0 ... i.
    pairs = sum(min(query + 1, S) for query in range(T)) if is_causal else T * S
    return flops, flops - flops // max(T * S, 1) * pairs


def _index_scores(out: Tensor, q: Tensor, k: Tensor, weight: Tensor, visible: Sight) -> Products:
    B, heads, T, width = q.shape
    flops = 2 * B * T * heads * k.shape[-2] * (width + 1)
    return flops, _hidden(flops, T, k.shape[-2], visible)


def _grouped(out: Tensor, x: Tensor, weight: Tensor, offsets: Tensor) -> Products:
    return formulas.grouped(x.shape, weight.shape), 0


def _hidden(flops: int, T: int, S: int, rule: Sight) -> int:
    """FLOPs of the pairs that a rule hides, of those of all pairs."""
    if isinstance(rule, Visible):
        pairs = visible_pairs(T, S, causal=rule.causal, window=rule.window)
    else:
        pairs = rule.pairs(T, S)
    return flops // max(T * S, 1) * (T * S - pairs)


_CORES: Mapping[Any, tuple[str, Callable[..., Products]]] = {
    attend: ("attend", _attend),
    grouped: ("grouped", _grouped),
    index_scores: ("index_scores", _index_scores),
    F.scaled_dot_product_attention: ("scaled_dot_product_attention", _scaled_dot_product),
}


class Operators(TorchDispatchMode):
    """Sees each operator that torch hands over, those of backward too."""

    supports_higher_order_operators = True

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self._whole: str | None = None

    def __torch_dispatch__(
        self,
        func: OpOverload | HigherOrderOperator,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            out = func(*args, **kwargs)
            self._watcher.operator(
                f"{func.namespace}::{func.name()}", {}, None, None, self._flow((args, kwargs), out, True)
            )
            return out
        op = func._schema.name
        if op.startswith("prim::"):  # a question about a fake tensor, such as its device
            return func(*args, **kwargs)
        known = op.removesuffix("_") in formulas.FORMULAS or op in _WHOLE
        if not known and _is_composite(func):
            outer, self._whole = self._whole, self._whole or op
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                self._whole = outer
        out = func(*args, **kwargs)
        given, shape = _shapes(_named(func, args, kwargs)), _shapes(out)
        flow = self._flow((args, kwargs), out, func._schema.is_mutable)
        self._watcher.operator(op, given, shape, _flops(op, given, shape), flow)
        return out

    def _flow(self, given: Any, out: Any, changes: bool) -> Flow:
        return Flow(tensors_of(given), tensors_of(out), changes, self._whole)


_WHOLE = frozenset(f"aten::{name}_norm" for name in ("layer", "batch", "group", "instance"))
"""Operators that torch composes of others and other counters have a rule for."""
_OWN = ("aten", "prim", "prims", "profiler", "explorer")


def _flops(op: str, given: Mapping[str, Any], out: Any) -> int | None:
    formula = formulas.FORMULAS.get(op.removesuffix("_"))
    if formula is not None:
        return formula(given, out)
    return 0 if op.split("::")[0] in _OWN else None


def _named(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    names = (argument.name for argument in func._schema.arguments)
    return {**dict(zip(names, args)), **kwargs}  # noqa: B905  (trailing defaults are dropped)


def tensors_of(value: Any) -> tuple[Tensor, ...]:
    """All tensors of nested tuples, lists and dicts."""
    return tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _shapes(value: Any) -> Any:
    return tree_map(lambda leaf: leaf.shape if isinstance(leaf, Tensor) else leaf, value)


@cache
def _is_composite(func: OpOverload) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
