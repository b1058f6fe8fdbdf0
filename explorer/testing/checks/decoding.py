"""The cache: a text read piece by piece gives what it gives in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.declared import padding_only
from explorer.assembly.model import BlockModule, Model
from explorer.testing.expect import expect_close, not_declared
from explorer.testing.toy import BATCH, TOKENS, Toy, ids

_CHUNKS = ((1,) * TOKENS, (2, TOKENS - 2), (TOKENS - 1, 1))
_WINDOW: Mapping[str, Any] = {"window": 2}


@torch.no_grad()
def cache_equals_full_pass(toy: Toy) -> None:
    """prefill and decode through the cache to equal the full pass"""
    expect_decodes(toy.model().eval())


@torch.no_grad()
def cache_equals_full_pass_in_a_window(toy: Toy) -> None:
    """the same with a window that is shorter than what is read"""
    require_pick(toy, "window")
    expect_decodes(toy.model(_WINDOW).eval())


@torch.no_grad()
def cache_equals_full_pass_under_a_mask(toy: Toy) -> None:
    """the same with a mask, of which each step gets its rows"""
    model = toy.model().eval()
    require_mask(model)
    expect_decodes(model, mask=hide_column(1))
    if "window" in toy.component.schema.picks:
        expect_decodes(toy.model(_WINDOW).eval(), mask=hide_column(1))


@torch.no_grad()
def cache_equals_full_pass_under_padding(toy: Toy) -> None:
    """the same with padding (B, 1, 1, S), of which each step gets the columns so far"""
    model = toy.model().eval()
    require_padding(model)
    expect_decodes(model, mask=padding(1))


def expect_decodes(model: Model, *, mask: Tensor | None = None, source: Tensor | None = None) -> None:
    """Raises: Unmet where some way to cut the text gives another result, SkipTest where the model keeps no cache."""
    require_cache(model)
    full = model(ids(), source=source, mask=mask)
    for chunks in _CHUNKS:
        said = " + ".join(map(str, chunks))
        wanted = f"{said} tokens through the cache to give what {TOKENS} at once give"
        expect_close(decoded(model, chunks, mask, source), full, wanted)


def decoded(model: Model, chunks: Sequence[int], mask: Tensor | None, source: Tensor | None) -> Tensor:
    """The outputs of a text read in pieces, joined; the source is given with the first piece only."""
    cache = model.make_cache(BATCH, sum(chunks))
    outputs, start = [], 0
    for size in chunks:
        end = start + size
        rows = None if mask is None else mask[..., :end] if mask.shape[-2] == 1 else mask[start:end, :end]
        outputs.append(model(ids()[:, start:end], source=source if start == 0 else None, mask=rows, cache=cache))
        start = end
    return torch.cat(outputs, dim=1)


def hide_column(key: int) -> Tensor:
    """A mask (T, T) under which no later query sees this key."""
    mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool)
    mask[key + 1 :, key] = False
    return mask


def padding(key: int) -> Tensor:
    """A mask (B, 1, 1, T) that hides one token of the last text."""
    mask = torch.ones(BATCH, 1, 1, TOKENS, dtype=torch.bool)
    mask[-1, ..., key] = False
    return mask


def require_cache(module: Model | BlockModule) -> None:
    """Raises: SkipTest where the attention's forward names no `cache`."""
    limits = module.stack.intake.limits
    if "cache" in limits:
        not_declared(limits["cache"])


def require_padding(module: Model | BlockModule) -> None:
    """Raises: SkipTest where the attention's forward names no `mask`."""
    limits = module.stack.intake.limits
    if "mask" in limits:
        not_declared(limits["mask"])


def require_mask(module: Model | BlockModule) -> None:
    """Raises: SkipTest where the attention's forward names no `mask`, or takes masks of padding only."""
    require_padding(module)
    if (said := padding_only(module)) is not None:
        not_declared(f"masks of padding only: {said}")


def require_pick(toy: Toy, name: str) -> None:
    """Raises: SkipTest where the constructor does not take this menu value."""
    if name not in toy.component.schema.picks:
        not_declared(f"{toy.kind} '{toy.component.label}' does not pick `{name}`")
