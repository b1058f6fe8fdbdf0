"""Before they are timed: what is declared equal to its baseline must compute the same."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.build import build_block
from explorer.assembly.construction import dtype_of
from explorer.latency.facts import not_compared, shown
from explorer.latency.failure import Failure, attempt
from explorer.latency.job import Job
from explorer.latency.parity import Agreement, gate
from explorer.latency.protocol import OnProgress, Progress
from explorer.latency.recipe import Recipe
from explorer.latency.twins import declared_equal
from explorer.registry.registry import Registry

# Enough for every head and most experts to have something to do, and few enough to cost nothing.
_TOKENS = 64


def gates(job: Job, registry: Registry, on_progress: OnProgress) -> dict[str, dict[str, Any]]:
    """By key of each candidate that is declared equal to its baseline, what the gate says of the two.

    They run a short prompt with the same weights. As JSON: see `facts.shown`.
    """
    found: dict[str, dict[str, Any]] = {}
    for recipe, base in _pairs(job, registry):
        on_progress(Progress("comparing", len(found), len(job.recipes), recipe.key))
        outcome = attempt(partial(_gate, recipe, base, registry, job), "comparing")
        gc.collect()
        if isinstance(outcome, Failure):
            found[recipe.key] = not_compared(outcome.reason, base.key)
        else:
            found[recipe.key] = shown(outcome, base.key)
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
    workload, plan = recipe.settled, recipe.plan(registry)
    dtype = dtype_of(workload.dtype)
    ours, theirs = (
        build_block(one.plan(registry), one.block, device=job.device, dtype=dtype) for one in (recipe, base)
    )
    drawn = torch.Generator(job.device).manual_seed(job.seed)

    def states(tokens: int | None) -> Tensor:
        shape = (1, min(tokens or 1, _TOKENS), plan.dim)
        return torch.randn(shape, generator=drawn, dtype=dtype, device=job.device)

    inputs = [states(workload.context), *([states(workload.source)] if recipe.reads_source else [])]
    return gate(ours, theirs, inputs, dtype)
