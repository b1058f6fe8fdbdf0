"""What the ledger knows of an operator: its family and the rules for its FLOPs, its element-wise work and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch._ops import OpOverload

from explorer.cost.ledger.free import family
from explorer.cost.ledger.products import ATTENTION_KERNELS, Products
from explorer.cost.ledger.rows import Work
from explorer.cost.ledger.rules import RULES
from explorer.cost.ledger.traffic import TRAFFIC, Given, Moved, everything
from explorer.cost.ledger.work import beside_products, rule_of


@dataclass(frozen=True)
class Operator:
    """kind "unknown": there is no rule, so that `work` is None; its bytes are known even so."""

    name: str
    kind: str
    products: Callable[[Given, Any], Products] | None
    work: Callable[[Given, Any], Work] | None
    moved: Callable[[Given, Any], Moved]


@cache
def operator(func: OpOverload) -> Operator:
    """All that is known of an operator, by its name without namespace and overload."""
    name = operator_name(func)
    bare = func._schema.name.removeprefix("aten::")
    moved = _without_results(func, TRAFFIC.get(bare) or _everything(func))
    if name in RULES:
        return Operator(name, _kind(name), RULES[name], beside_products(name.removeprefix("aten::")), moved)
    known = family(func)
    if known is None:
        return Operator(name, "unknown", None, None, moved)
    return Operator(name, known, None, rule_of(bare, known), moved)


@cache
def operator_name(func: OpOverload) -> str:
    """`aten::addmm` for `aten::addmm.out` and `aten::addmm_` as well."""
    name: str = func._schema.name
    return name.removesuffix("_") if name.removesuffix("_") in RULES else name


@cache
def is_composite(func: OpOverload) -> bool:
    """Whether torch composes this operator of others that a rule or a family may know, on meta and on devices."""
    has_kernel = partial(torch._C._dispatch_has_kernel_for_dispatch_key, func.name())
    return has_kernel("CompositeImplicitAutograd") and not (has_kernel("CPU") and has_kernel("Meta"))


def named_arguments(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the operator's schema; what is left at its default is not there."""
    return {**dict(zip(_names(func), args)), **kwargs}  # noqa: B905  (trailing defaults are dropped)


@cache
def _names(func: OpOverload) -> tuple[str, ...]:
    return tuple(argument.name for argument in func._schema.arguments)


def _everything(func: OpOverload) -> Callable[[Given, Any], Moved]:
    """All arguments are read; all results are written, and what changes in place without being returned."""
    writes = [argument for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    returned = any(result.alias_info and result.alias_info.is_write for result in func._schema.returns)
    changed = () if returned else tuple(argument.name for argument in writes)
    return lambda given, out: everything(given, [out, *(given.get(name) for name in changed)])


def _without_results(func: OpOverload, rule: Callable[[Given, Any], Moved]) -> Callable[[Given, Any], Moved]:
    """Arguments that a result is written into, as `out=`, are not read."""
    results = frozenset(argument.name for argument in func._schema.arguments if argument.is_out)
    if not results:
        return rule
    return lambda given, out: rule({name: value for name, value in given.items() if name not in results}, out)


_ATTENTION = tuple(f"aten::_scaled_dot_product_{kernel}" for kernel in ATTENTION_KERNELS)


def _kind(name: str) -> str:
    return "fused" if name.removesuffix("_backward") in _ATTENTION else "product"
