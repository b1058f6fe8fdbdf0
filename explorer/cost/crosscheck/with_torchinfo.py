"""torchinfo's summary: multiply-adds and parameters of the modules that are called in forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import nn

from explorer.cost.crosscheck import reasons
from explorer.cost.crosscheck.calls import Calls, ModuleCall
from explorer.cost.crosscheck.one_pass import OnePass
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.tool import Reason, Tool, summed
from explorer.cost.parts.failures import foreign

if TYPE_CHECKING:
    from torchinfo import ModelStatistics

NAME, UNIT = "torchinfo", "mult-add"


def tools(run: OnePass, calls: Calls, ours: Ours) -> list[Tool]:
    """Multiply-adds and parameters. calls: of the forward of the same module, in inference mode. Raises: CannotRun."""
    found = _summary(run)
    macs, params = int(found.total_mult_adds), int(found.total_params)
    # Releases after 1.8.0 may multiply the weights of a Linear by all its rows: the rule that fits is the one it has.
    fits = next((rule for rule in _RULES if sum(_mult_adds(calls, run, rule).values()) == macs), _of_batch)
    of_flops = summed([reasons.BACKWARD.adds(-ours.backward), *_reasons(run, calls, ours, fits)])
    twice = summed(_twice(run.module, calls, found))
    return [
        Tool(NAME, version("torchinfo"), "matmul_flops", UNIT, 2, macs, ours.matmul_flops, of_flops),
        Tool(NAME, version("torchinfo"), "params", "parameter", 1, params, ours.params, twice),
    ]


def _summary(run: OnePass) -> ModelStatistics:
    from torchinfo import summary
    from torchinfo.torchinfo import clear_cached_forward_pass

    mode = "train" if run.train else "eval"
    try:
        with foreign(), run.mode():
            return summary(run.module, input_data=list(run.inputs), mode=mode, verbose=0)
    finally:
        clear_cached_forward_pass()  # it would keep the module alive


Rule = Callable[[nn.Module, torch.Size], int]
"""(module, shape of its result) -> by what the sizes of its weights are multiplied."""


def _of_batch(module: nn.Module, out: torch.Size) -> int:
    return out[0]


def _of_rows(module: nn.Module, out: torch.Size) -> int:
    return prod(out[:-1]) if isinstance(module, nn.Linear) else out[0]


_RULES: tuple[Rule, ...] = (_of_batch, _of_rows)


def _mult_adds(calls: Calls, run: OnePass, rule: Rule) -> Counter[str]:
    """By "weights" of modules with products, their "others" and "gains" of modules without: what it adds up."""
    leaves, products = _leaves(run.module), _products(calls, run.module)
    found = Counter[str]()
    for call in calls.modules:
        if call.module not in leaves:
            continue
        for name, parameter in call.module.named_parameters():
            kind = "weights" if parameter.ndim > 1 and products[call.module] else "others"
            found[kind] += _of_parameter(call, name, parameter.numel(), rule)
    return found


def _of_parameter(call: ModuleCall, name: str, numel: int, rule: Rule) -> int:
    if call.out is None:
        return 0
    if name in ("weight", "bias"):
        if "Conv" in type(call.module).__name__:
            return numel * prod(call.out[:1] + call.out[2:])
        return numel * rule(call.module, call.out)
    return numel * prod(call.out[:2]) if "weight" in name or "bias" in name else 0


def _reasons(run: OnePass, calls: Calls, ours: Ours, rule: Rule) -> Iterator[Reason]:
    counted, products = _mult_adds(calls, run, rule), _products(calls, run.module)
    weighed = {m for m in products if any(p.ndim > 1 and "weight" in name for name, p in m.named_parameters())}
    of_weights = sum(flops for module, flops in products.items() if module in weighed)
    yield reasons.LENGTH.adds(2 * counted["weights"] - of_weights)
    yield reasons.GAINS.adds(2 * counted["others"])
    everything = sum(core.flops for core in calls.cores) + sum(call.flops or 0 for call in calls.outside())
    yield reasons.OUTSIDE.adds(of_weights - everything)
    for op, flops in ours.custom_forward.items():
        yield reasons.custom_operator(op).adds(-flops)


def _leaves(module: nn.Module) -> set[nn.Module]:
    return {part for part in module.modules() if not any(part.children())}


def _products(calls: Calls, module: nn.Module) -> Counter[nn.Module]:
    """FLOPs by formula in the forwards of modules that hold no others."""
    leaves = _leaves(module)
    found = Counter[nn.Module]()
    for where, flops in [
        *((core.called, core.flops) for core in calls.cores),
        *((call.called, call.flops or 0) for call in calls.outside()),
    ]:
        if where and where[-1] in leaves:
            found[where[-1]] += flops
    return found


def _twice(module: nn.Module, calls: Calls, found: ModelStatistics) -> Iterator[Reason]:
    """What it counts more than once, or not at all."""
    listed = {call.module for call in calls.modules} & set(module.modules())
    once = sum(parameter.numel() for parameter in module.parameters())
    if _has_reused_modules(module):
        # In the order of the calls its holders stand apart from what they hold: the table itself says what it added.
        yield reasons.REUSED.adds(_added_up(found) - once)
        return
    yield reasons.TIED.adds(_listed(module, listed) - once)


def _has_reused_modules(module: nn.Module) -> bool:
    places = [name for name, _ in module.named_modules(remove_duplicate=False)]
    return len(places) > len(list(module.modules()))


def _listed(module: nn.Module, called: set[nn.Module]) -> int:
    """Parameters of called modules without others inside, and what is left over in those that hold them."""
    total, _ = _own_and_left_over(module, called)
    return total


def _own_and_left_over(module: nn.Module, called: set[nn.Module]) -> tuple[int, int]:
    """(sum in the table, what its holder takes off) of a module and all that it holds."""
    own = sum(parameter.numel() for parameter in module.parameters())
    parts = list(module.children())
    if not parts:
        return (own, own) if module in called else (0, 0)
    if not any(part in called for part in module.modules()):
        return 0, 0
    inside = [_own_and_left_over(part, called) for part in parts]
    below = sum(taken for _, taken in inside)
    return sum(total for total, _ in inside) + max(own - below, 0), own


def _added_up(found: ModelStatistics) -> int:
    """Its total by its own table: modules without others inside, and what is left over in the others."""
    rows = [row for row in found.summary_list if not row.is_recursive]
    return sum(row.num_params if row.is_leaf_layer else max(row.leftover_params(), 0) for row in rows)
