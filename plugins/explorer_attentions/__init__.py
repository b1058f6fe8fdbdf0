"""Attentions: the sublayer in which positions see each other, (B, T, dim) -> (B, T, dim)."""

from collections.abc import Callable, Mapping

from torch import nn

from explorer import hookimpl
from explorer_attentions.gqa import GroupedQueryAttention
from explorer_attentions.mha import mha
from explorer_attentions.mha_naive import NaiveMultiHeadAttention


@hookimpl
def register_attentions() -> Mapping[str, Callable[..., nn.Module] | None]:
    return {"gqa": GroupedQueryAttention, "mha": mha, "mha_naive": NaiveMultiHeadAttention, "none": None}
