"""Names for the pieces of blocks, equal exactly where two pieces are the same work: one of them need be measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from explorer.assembly.menus import MENUS
from explorer.assembly.positions import PositionMaker, Positions
from explorer.assembly.sites import Sites, sublayers
from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan
from explorer.blueprint.workload import Workload
from explorer.latency.located import located
from explorer.latency.pieces import CONNECTION
from explorer.registry.chosen import Chosen, Maker
from explorer.registry.sites import Site


def pieces_of(plan: ModelPlan, label: str) -> tuple[str, ...]:
    """The pieces of a block, by its label in the plan; their times are to be added."""
    _, block = located(plan, label)
    return *sublayers(block), CONNECTION


def piece_key(plan: ModelPlan, label: str, piece: str, workload: Workload) -> str:
    """The name of one piece of a block on a settled workload, the same in every process.

    A sublayer: its component with all options, what it takes of the block's menu, and the lengths and dtypes that it
    meets. The connection: norm, residual, placement, dropout, which sublayers there are, and the same. A component that
    takes its site is another one at each place. label: the block's in the plan. workload: as this block sees it
    (`of_source()` for an encoder's).
    """
    stack, block = located(plan, label)
    if piece == CONNECTION:
        name, form = f"{block.norm.name} {stack.residual.name}", _connection(plan, stack, block)
    else:
        name, form = sublayers(block)[piece].name, _sublayer(plan, stack, block, piece)
    told = json.dumps([piece, form, _work(piece, workload)], sort_keys=True, default=repr)
    return f"{piece} {name} {hashlib.sha256(told.encode()).hexdigest()[:12]}"


def _sublayer(plan: ModelPlan, stack: StackPlan, block: BlockPlan, piece: str) -> dict[str, Any]:
    chosen = sublayers(block)[piece]
    menu = MENUS[piece](plan, block, Positions(plan.dim, stack=stack.name), _sites(plan, stack, block)[piece])
    return _identity(chosen, menu)


def _connection(plan: ModelPlan, stack: StackPlan, block: BlockPlan) -> dict[str, Any]:
    sites = _sites(plan, stack, block)
    return {
        "norm": _identity(block.norm, {"dim": plan.dim}),
        "residual": [_identity(stack.residual, {"dim": plan.dim, "site": site}) for site in sites.values()],
        "placement": block.placement,
        "shared_norm": block.shared_norm,
        "dropout": block.dropout.sublayer,
        "sublayers": list(sites),
        "dim": plan.dim,
    }


def _sites(plan: ModelPlan, stack: StackPlan, block: BlockPlan) -> dict[str, Site]:
    """Of each sublayer, in the layer in which `build_block` puts the block: its last one."""
    if block.name not in stack.layers:
        stack = replace(stack, layers=(*stack.layers[:-1], block.name))
    last = max(layer for layer, name in enumerate(stack.layers) if name == block.name)
    sites = list(Sites(plan, stack, encoder=plan.encoder is not None and stack.name == plan.encoder.name).of(last))
    names = sublayers(block)
    return dict(zip(names, sites if block.shared_norm is None else sites * len(names), strict=True))


def _identity(chosen: Chosen, menu: Mapping[str, Any]) -> dict[str, Any]:
    """Component, options, and what it picks of a menu."""
    component = chosen.component
    written = {name: value for name, value in chosen.settings().items() if name not in chosen.picks}
    picked = {name: chosen.params.get(name, _plain(menu[name])) for name in chosen.picks}
    return {
        "name": f"{component.package}:{component.name}",
        "of": str(component.origin),
        "options": written,
        "menu": picked,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, PositionMaker):
        block = value.block
        return _identity(block.position, {**vars(block), "dim": value.positions.dim, "stack": value.positions.stack})
    if isinstance(value, Maker):
        return _identity(value.chosen, value.menu)
    if isinstance(value, Site):
        return dict(vars(value))
    return None if callable(value) else value  # no position, which cross-attention has


def _work(piece: str, workload: Workload) -> dict[str, Any]:
    """What of a workload a piece meets."""
    held = None
    if workload.phase == "decode" or workload.context != workload.tokens:
        held = workload.kv_dtype
    lengths = {"attention": (workload.context, held), "cross_attention": (workload.source, held)}.get(piece)
    train = workload.phase == "train"
    return {"train": train, "of": [workload.batch, workload.tokens, workload.dtype], "reads": lengths}
