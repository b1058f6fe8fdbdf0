"""Attentions: the sublayer in which positions see each other, (B, T, dim) -> (B, T, dim)."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from explorer import OpCost, hookimpl
from explorer_attentions.carry import carry_cost
from explorer_attentions.csa import csa
from explorer_attentions.differential import DifferentialAttention
from explorer_attentions.gated_deltanet import GatedDeltaNet
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.hca import hca
from explorer_attentions.kda import KimiDeltaAttention
from explorer_attentions.linear import LinearAttention
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from explorer_attentions.mla import MultiheadLatentAttention


@hookimpl
def register_attentions() -> Mapping[str, Callable[..., nn.Module] | None]:
    return {
        "csa": csa,
        "differential": DifferentialAttention,
        "gated_deltanet": GatedDeltaNet,
        "gqa": GroupedQueryAttention,
        "hca": hca,
        "kda": KimiDeltaAttention,
        "linear": LinearAttention,
        "mha": mha,
        "mha_naive": NaiveMultiHeadAttention,
        "mla": MultiheadLatentAttention,
        "none": None,
    }


@hookimpl
def register_cost_rules() -> Mapping[str, Callable[[Mapping[str, Any], Any], OpCost]]:
    return {"explorer_attentions::carry": carry_cost}
