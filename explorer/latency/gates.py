"""Before they are timed: what is declared equal to its baseline must compute the same."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from explorer.assembly.build import build_block
from explorer.assembly.construction import dtype_of
from explorer.assembly.model import BlockModule
from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError
from explorer.latency.facts import gated
from explorer.latency.job import Job
from explorer.latency.memory import free_bytes
from explorer.latency.parity import Agreement
from explorer.latency.protocol import OnProgress, Progress
from explorer.latency.recipe import Recipe
from explorer.latency.runner import Feed
from explorer.latency.same_step import Run, compare_runs, least_bytes, twin_runs
from explorer.latency.twins import declared_equal
from explorer.registry.registry import Registry

# Enough for every head and most experts to have something to do, and few enough to cost nothing.
_BATCH = 2
_TOKENS = 64


def gates(job: Job, registry: Registry, on_progress: OnProgress) -> dict[str, dict[str, Any]]:
    """By key of each candidate that is declared equal to its baseline, what the gate says of the two.

    They run the phase that is timed, in a short form, with the same weights. As JSON: see `facts.gated`.
    """
    found: dict[str, dict[str, Any]] = {}
    for recipe, base in _pairs(job, registry):
        on_progress(Progress("comparing", len(found), len(job.recipes), recipe.key))
        found[recipe.key] = gated(partial(_gate, recipe, base, registry, job), base.key)
        gc.collect()
    return found


def _pairs(job: Job, registry: Registry) -> Iterator[tuple[Recipe, Recipe]]:
    """The whole blocks that are declared equal to their baselines."""
    by_key = {recipe.key: recipe for recipe in job.recipes}
    for recipe in job.recipes:
        base = by_key.get(recipe.baseline or "")
        if base is None or recipe.piece or base.piece or recipe.clone_of:
            continue
        if declared_equal(recipe.plan(registry), recipe.block, base.plan(registry), base.block):
            yield recipe, base


def _gate(recipe: Recipe, base: Recipe, registry: Registry, job: Job) -> Agreement:
    """In float32 at least first: only there is seen what is less than a rounding of a narrower dtype."""
    dtype = dtype_of(recipe.settled.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    _check_room(least_bytes(*_blocks(recipe, base, registry, "meta", wide), recipe.settled.phase), job.device)
    for each in dict.fromkeys((wide, dtype)):
        found = compare_runs(*_runs(recipe, base, registry, job, each))
        if not found.ok:
            break
    return found


def _check_room(needed: int, device: str) -> None:
    """Raises MeasureError where too little is free: on a CPU the system would end this process."""
    free = free_bytes(device)
    if free is not None and needed > free:
        sizes = [f"{size / 2**30:.1f} GiB" for size in (needed, free)]
        raise MeasureError(f"not compared: comparing takes {sizes[0]}, {sizes[1]} are free on {device}")


def _blocks(
    recipe: Recipe, base: Recipe, registry: Registry, device: str, dtype: torch.dtype
) -> tuple[BlockModule, BlockModule]:
    ours, theirs = (build_block(one.plan(registry), one.block, device=device, dtype=dtype) for one in (recipe, base))
    return ours, theirs


def _runs(recipe: Recipe, base: Recipe, registry: Registry, job: Job, dtype: torch.dtype) -> tuple[Run, Run]:
    """The phase that is timed, short, on both blocks."""
    workload = _short(recipe.settled, str(dtype).removeprefix("torch."))
    feed = Feed(dim=recipe.plan(registry).dim, source=recipe.reads_source)
    blocks = _blocks(recipe, base, registry, job.device, dtype)
    return twin_runs(*blocks, workload, feed, device=job.device, seed=job.seed)


def _short(workload: Workload, dtype: str) -> Workload:
    """The same phase in a dtype, its cache included, with few sequences of few tokens."""
    tokens, context = min(workload.tokens or 1, _TOKENS), workload.context or 1
    held = min(context - (workload.tokens or 1), _TOKENS)
    source = workload.source and min(workload.source, _TOKENS)
    return replace(
        workload,
        batch=min(workload.batch, _BATCH),
        tokens=tokens,
        context=tokens + held,
        source=source,
        dtype=dtype,
        weight_dtype=None,
        kv_dtype=None,
    )
