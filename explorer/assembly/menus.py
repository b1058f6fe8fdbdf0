"""What a block gives to the constructors of its sublayers: the names left of ``*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from explorer.assembly.positions import Positions, no_position
from explorer.assembly.sites import CROSS
from explorer.blueprint.plan import BlockPlan, ModelPlan
from explorer.registry.sites import Site

Menu = dict[str, Any]


def attention_menu(plan: ModelPlan, block: BlockPlan, positions: Positions, site: Site) -> Menu:
    return {
        "dim": plan.dim,
        "heads": block.heads,
        "head_dim": block.head_dim,
        "causal": block.causal,
        "window": block.window,
        "bias": block.bias,
        "position": positions.maker(block),
        "dropout": block.dropout.attention,
        "site": site,
    }


def cross_attention_menu(plan: ModelPlan, block: BlockPlan, positions: Positions, site: Site) -> Menu:
    """The same without position, causal mask and window: queries and keys stand in different sequences."""
    menu = attention_menu(plan, block, positions, site)
    return {**menu, "causal": False, "window": None, "position": no_position}


def feedforward_menu(plan: ModelPlan, block: BlockPlan, positions: Positions, site: Site) -> Menu:
    return {
        "dim": plan.dim,
        "activation": block.activation.maker(),
        "bias": block.bias is True,  # `qkv` and `out` name maps of an attention
        "dropout": block.dropout.activation,
        "vocab": plan.vocab,
        "site": site,
    }


MENUS: Mapping[str, Callable[[ModelPlan, BlockPlan, Positions, Site], Menu]] = {
    "attention": attention_menu,
    CROSS: cross_attention_menu,
    "feedforward": feedforward_menu,
}
