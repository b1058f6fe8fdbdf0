"""What one comparison measures, as plain JSON: a worker process builds everything from it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from explorer.errors import UsageError
from explorer.latency.device import device_name, resolve_device
from explorer.latency.effort import Effort, effort_for
from explorer.latency.implementation import checked
from explorer.latency.raw import Lane
from explorer.latency.recipe import Recipe
from explorer.latency.temperature import MODES
from explorer.latency.words import known


@dataclass(frozen=True)
class Job:
    """What one comparison measures, and in which surroundings.

    threads, float32_matmul: of torch in the worker. modules: plugin modules beside the installed ones. path: sys.path.
    last_cache: bytes of the last-level cache, None for what the device tells (see `last_cache_bytes`). without: lanes
    that are left out, because trying them ends a worker. uninspected: candidates of which only times are wanted,
    because looking for facts of them ended one.
    """

    device: str
    device_name: str
    effort: Effort
    recipes: tuple[Recipe, ...]
    impls: tuple[str, ...]
    cache: str
    seed: int
    threads: int
    float32_matmul: str
    modules: tuple[str, ...]
    path: tuple[str, ...]
    versions: Mapping[str, str]
    last_cache: int | None = None
    without: tuple[Lane, ...] = ()
    uninspected: tuple[str, ...] = ()

    @property
    def beside(self) -> dict[str, frozenset[str]]:
        """By key of each recipe those that must be in the same rounds: its baseline, and the clones of both."""
        keys = {recipe.key for recipe in self.recipes}
        clones: dict[str | None, str] = {one.clone_of: one.key for one in self.recipes if one.clone_of is not None}

        def around(recipe: Recipe) -> set[str | None]:
            return {recipe.baseline, recipe.clone_of, clones.get(recipe.key), clones.get(recipe.baseline)}

        return {
            recipe.key: frozenset(key for key in around(recipe) if key in keys and key is not None) - {recipe.key}
            for recipe in self.recipes
        }

    @property
    def digest(self) -> str:
        """Equal for jobs whose measurements belong together, in whatever folder they run."""
        told = {key: value for key, value in self.to_dict().items() if key != "path"}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def only(self, keys: Collection[str]) -> Job:
        """The job with some of its recipes."""
        return replace(self, recipes=tuple(recipe for recipe in self.recipes if recipe.key in keys))

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Job:
        """What `to_dict` made, read again."""
        lists = {key: tuple(data[key]) for key in ("impls", "modules", "path", "uninspected")}
        recipes = tuple(Recipe(**one) for one in data["recipes"])
        without = tuple(Lane(**one) for one in data["without"])
        return cls(**{**data, **lists, "effort": Effort(**data["effort"]), "recipes": recipes, "without": without})


def job_for(
    recipes: Iterable[Recipe],
    *,
    baseline: str | None = None,
    device: str | None = None,
    effort: str | Effort = "default",
    impls: Sequence[str] = ("eager",),
    cache: str = "auto",
    seed: int = 0,
    modules: Sequence[str] = (),
    last_cache: int | None = None,
) -> Job:
    """The job of a comparison in the surroundings of this process: its threads, precision and import path.

    baseline: the key whose clone is measured too; recipes that name no other are compared with it.

    Raises UsageError for an unknown device, effort, implementation or cache mode, for a baseline that is no recipe, and
    for two recipes with one key.
    """
    import torch

    import explorer

    where = resolve_device(device)
    return Job(
        device=where,
        device_name=device_name(where),
        effort=effort_for(effort) if isinstance(effort, str) else effort,
        recipes=_with_clone(tuple(recipes), baseline),
        impls=checked(impls),
        cache=known("cache mode", cache, MODES),
        seed=seed,
        threads=torch.get_num_threads(),
        float32_matmul=torch.get_float32_matmul_precision(),
        modules=tuple(modules),
        path=tuple(sys.path),
        versions={"torch": torch.__version__, "explorer": explorer.__version__},
        last_cache=last_cache,
    )


def _with_clone(recipes: tuple[Recipe, ...], baseline: str | None) -> tuple[Recipe, ...]:
    by_key: dict[str, Recipe] = {}
    for recipe in recipes:
        if recipe.key in by_key:
            raise UsageError(f"two candidates to measure are called {recipe.key}")
        by_key[recipe.key] = recipe
    if baseline is None:
        return recipes
    control = by_key[known("baseline", baseline, by_key)]
    others = [
        recipe if recipe.baseline or recipe is control else replace(recipe, baseline=baseline) for recipe in recipes
    ]
    return (*others, control.clone())
