"""Before they are timed: what is declared equal to its baseline must compute the same."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from explorer.assembly.build import build_block
from explorer.assembly.construction import dtype_of
from explorer.blueprint.workload import Workload
from explorer.latency.facts import gated
from explorer.latency.job import Job
from explorer.latency.parity import Agreement
from explorer.latency.protocol import OnProgress, Progress
from explorer.latency.recipe import Recipe
from explorer.latency.runner import Feed, Make, ready
from explorer.latency.same_step import Run, compare_runs
from explorer.latency.twins import declared_equal, equal_moves, share_weights
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
    for each in dict.fromkeys((torch.promote_types(dtype, torch.float32), dtype)):
        found = compare_runs(*_runs(recipe, base, registry, job, each))
        if not found.ok:
            break
    return found


def _runs(recipe: Recipe, base: Recipe, registry: Registry, job: Job, dtype: torch.dtype) -> Iterator[Run]:
    """The phase that is timed, short, on both blocks: in eval mode, for dropout draws other numbers in each."""
    plans = [one.plan(registry) for one in (recipe, base)]
    ours, theirs = (
        build_block(plan, one.block, device=job.device, dtype=dtype)
        for plan, one in zip(plans, (recipe, base), strict=True)
    )
    share_weights(ours, theirs)
    workload = _short(recipe.settled, str(dtype).removeprefix("torch."))
    moves = equal_moves(ours, theirs) if workload.phase == "train" else (None, None)
    feed = Feed(dim=plans[0].dim, source=recipe.reads_source)
    for block, move in zip((ours, theirs), moves, strict=True):
        step = ready(_given(block), workload, feed, device=job.device, seed=job.seed)
        yield Run(step, block.eval(), move)


def _given(block: nn.Module) -> Make:
    return lambda device, dtype: block


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
