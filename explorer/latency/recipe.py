"""A block to measure, as data that any process can build it from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from explorer.blueprint.load import load
from explorer.blueprint.workload import Workload
from explorer.latency.words import known

if TYPE_CHECKING:
    from explorer.blueprint.plan import ModelPlan
    from explorer.latency.runner import Step
    from explorer.registry.registry import Registry

CLONE = "~"
"""What is put behind the key of a candidate for its clone, the same candidate once more: their ratio is 1."""


@dataclass(frozen=True)
class Recipe:
    """A block to measure.

    document: the blueprint of one combination, resolved: plans cannot be sent to another process. block: its name in
    reports. workload: settled, as `vars(Workload)`. piece: of the block (see `pieces`), None for all of it.
    baseline: the key of the recipe that it is compared with. clone_of: of the one that it repeats. least_bytes: what it
    is known to need on the device (weights, cache). touched_bytes: of its weights and cache those that one call reads,
    None for all: a mixture reads few experts.
    """

    key: str
    document: Mapping[str, Any]
    block: str
    workload: Mapping[str, Any]
    piece: str | None = None
    baseline: str | None = None
    clone_of: str | None = None
    least_bytes: int = 0
    touched_bytes: int | None = None

    def clone(self) -> Recipe:
        """The same once more, under a key of its own."""
        return replace(self, key=f"{self.key}{CLONE}", baseline=self.key, clone_of=self.key)

    @property
    def settled(self) -> Workload:
        """The workload as the block sees it: an encoder's tokens are the source."""
        workload = Workload(**self.workload)
        return workload.of_source() if self._in_encoder else workload

    @property
    def reads_source(self) -> bool:
        """Whether the block gets what an encoder made of the source."""
        return Workload(**self.workload).source is not None and not self._in_encoder

    @property
    def _in_encoder(self) -> bool:
        return self.block.startswith("encoder.")

    def plan(self, registry: Registry) -> ModelPlan:
        """The model of the blueprint. Raises: BlueprintError."""
        return load(self.document, registry=registry).plan()

    def step(self, registry: Registry, *, device: str, seed: int = 0) -> Step:
        """One step of the workload on the block or its piece, on a device, ready to run; `seed` draws its inputs.

        Raises: BlueprintError, RefusedError, UsageError, MeasureError, and whatever a component raises.
        """
        block = self._block_step(registry, device, seed)
        if self.piece is None:
            return block
        from explorer.latency.pieces import pieces

        found = pieces(block)
        return found[known("piece of a block", self.piece, found)]

    def _block_step(self, registry: Registry, device: str, seed: int) -> Step:
        from explorer.assembly.build import build_block
        from explorer.latency.runner import Feed, ready

        plan = self.plan(registry)
        return ready(
            lambda where, dtype: build_block(plan, self.block, device=where, dtype=dtype),
            self.settled,
            Feed(dim=plan.dim, source=self.reads_source),
            device=device,
            seed=seed,
        )
