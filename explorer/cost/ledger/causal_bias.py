"""torch's CausalBias, a mask that is a rule and no tensor of numbers: which pairs it shows is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from explorer.assembly.visible import Visible

CAUSAL = Visible(causal=True)
"""Aligned bottom-right, as `causal_lower_right`."""


@contextmanager
def causal_biases() -> Iterator[None]:
    """Inside, CausalBias can be made while a dispatch mode is on; torch 2.13 raises there."""
    from torch.nn.attention.bias import CausalBias

    def made(cls: type[Tensor], *args: Any, **kwargs: Any) -> Tensor:
        with _disable_current_modes():
            return Tensor._make_subclass(cls, torch.empty(0))

    if "__new__" in vars(CausalBias):
        yield
        return
    setattr(CausalBias, "__new__", made)  # noqa: B010  (a type checker knows no class without it)
    try:
        yield
    finally:
        delattr(CausalBias, "__new__")


def is_lower_right(mask: Any, query: Any, key: Any) -> bool | None:
    """Whether a mask is a CausalBias that is aligned bottom-right; False: top-left; None: it is another mask."""
    from torch.nn.attention.bias import CausalBias, CausalVariant

    if not isinstance(mask, CausalBias):
        return None
    return query.shape[-2] != key.shape[-2] and mask.variant is CausalVariant.LOWER_RIGHT


def with_rule(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Tensor], tuple[Any, ...], Mapping[str, Any]]:
    """An SDPA as it is, or where its mask is a CausalBias with the rule in its place: the function and its arguments.

    Raises: ValueError, as torch does, for a second causal rule beside it.
    """
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    lower = is_lower_right(given.pop("attn_mask", None), given.get("query"), given.get("key"))
    if lower is None:
        return F.scaled_dot_product_attention, args, kwargs
    if given.pop("is_causal", False):
        raise ValueError("CausalBias should not be used with causal=True")
    return (lower_right, (), given) if lower else (F.scaled_dot_product_attention, (), {**given, "is_causal": True})


def lower_right(query: Tensor, key: Tensor, value: Tensor, **other: Any) -> Tensor:
    """SDPA whose last query sees all keys."""
    mask = CAUSAL.mask(query.shape[-2], key.shape[-2], query.device)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **other)


_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
