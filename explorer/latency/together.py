"""All candidates of a job in this process, in as many groups as the memory of the device asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from explorer.latency.chunks import in_chunks
from explorer.latency.gates import gates
from explorer.latency.job import Job
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.measure import Candidate, OnFacts, OnTimed, measure
from explorer.latency.memory import free_bytes
from explorer.latency.protocol import OnProgress
from explorer.latency.raw import Process
from explorer.latency.recipe import Recipe
from explorer.latency.temperature import Room, temperature
from explorer.registry.loading import load_registry
from explorer.registry.registry import Registry


def measured(
    job: Job, on_progress: OnProgress, on_timed: OnTimed | None = None, on_facts: OnFacts | None = None
) -> Iterator[Process]:
    """The records of a job: one, or one for each group of candidates that fit in memory side by side.

    on_timed, on_facts: get each record before its facts, its gates excepted, then those (see `measure`).
    Raises PluginError or UsageError where a module of the job cannot be loaded.
    """
    registry = load_registry(job.modules)
    room = Room(job.last_cache or last_cache_bytes(job.device), free_bytes(job.device))
    sizes = {recipe.key: _size(recipe, job.cache, room) for recipe in job.recipes}

    passed = gates(job, registry, on_progress)

    def group(keys: Sequence[str]) -> Process:
        found = measure(
            [_candidate(recipe, registry, job) for recipe in job.recipes if recipe.key in keys],
            device=job.device,
            effort=job.effort,
            seed=job.seed,
            impls=job.impls,
            cache=job.cache,
            last_cache=job.last_cache,
            without=job.without,
            uninspected=job.uninspected,
            baselines={recipe.key: recipe.baseline for recipe in job.recipes},
            on_progress=on_progress,
            on_timed=on_timed and (lambda record: on_timed(_with_gates(record, passed))),
            on_facts=on_facts,
        )
        return _with_gates(found, passed)

    return in_chunks(sizes, job.beside, room.free, group)


def _with_gates(process: Process, gates: Mapping[str, dict[str, Any]]) -> Process:
    """The record with the gate of each candidate among its facts, under `gate`."""
    facts = {key: {impl: dict(found) for impl, found in impls.items()} for key, impls in process.facts.items()}
    for lane in (track.lane for track in process.tracks if track.lane.candidate in gates):
        facts.setdefault(lane.candidate, {}).setdefault(lane.impl, {})["gate"] = gates[lane.candidate]
    return replace(process, facts=facts)


def _candidate(recipe: Recipe, registry: Registry, job: Job) -> Candidate:
    step = partial(recipe.step, registry, device=job.device, seed=job.seed)
    return Candidate(recipe.key, step, recipe.least_bytes, recipe.touched_bytes)


def _size(recipe: Recipe, cache: str, room: Room) -> int:
    """Bytes that a candidate takes in all copies of its weights."""
    warmth = temperature(cache, recipe.settled.phase, recipe.least_bytes, room, touched=recipe.touched_bytes)
    return warmth.copies * recipe.least_bytes
