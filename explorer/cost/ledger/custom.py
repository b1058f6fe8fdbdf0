"""Rules of plugins for operators of their own, as `register_cost_rules` hands them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from torch import Tensor

from explorer.cost.ledger.products import Products
from explorer.cost.ledger.rows import OpCost, Work
from explorer.cost.ledger.traffic import Given, Moved, Share
from explorer.errors import PluginError
from explorer.registry.blame import told
from explorer.registry.registry import CostRule


def cost_of(rule: CostRule, given: Given, moved: Moved, out: Any) -> tuple[Products, Work, Moved]:
    """What a plugin says that a call costs; moved: what it moves where the rule says nothing else.

    Raises: PluginError where another package has a rule too, where the rule fails, or returns something else.
    """
    if rule.rivals:
        both = " and ".join(f"{one.origin} ({one.package})" for one in (rule, *rule.rivals))
        raise PluginError(f"two packages have a cost rule for {rule.op}: {both}; uninstall all but one of them")
    try:
        cost = rule.rule(given, out)
    except Exception as error:
        raise PluginError(f"{rule} failed: {told(error)}") from error
    if not isinstance(cost, OpCost):
        raise PluginError(f"{rule} must return an OpCost, not {type(cost).__name__}")
    exact = cost.matmul_flops if cost.matmul_flops_exact is None else cost.matmul_flops_exact
    products = Products(cost.matmul_flops, None if cost.reason else exact, cost.reason)
    work = Work(cost.cheap_ops, cost.transcendental_ops, cost.reduction_ops)
    read = _as_said(rule, moved.read, cost.read_bytes, given)
    return products, work, Moved(read, _as_said(rule, moved.written, cost.written_bytes, given))


def refuse(rule: CostRule) -> NoReturn:
    """For a rule about an operator that needs none. Raises: PluginError."""
    raise PluginError(f"{rule}: the explorer itself counts {rule.op}; a plugin speaks of operators of its own only")


def _as_said(rule: CostRule, shares: list[Share], said: Mapping[str, int], given: Given) -> list[Share]:
    """The shares, with those arguments that the rule names moved as far as it says."""
    for name in said:
        if not isinstance(given.get(name), Tensor):
            raise PluginError(f"{rule} says bytes of '{name}', which is no tensor among {', '.join(given)}")
    by_tensor = {id(given[name]): nbytes for name, nbytes in said.items()}
    return [(tensor, by_tensor.get(id(tensor), whole)) for tensor, whole in shares]
