"""What a row warns of: what its components say while they are built, and what they declare to leak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from explorer.assembly.declared import leaks
from explorer.blueprint.plan import BlockPlan, ModelPlan
from explorer.cost.parts.workshop import warnings_told
from explorer.registry.chosen import Chosen


@contextmanager
def warned(plan: ModelPlan) -> Iterator[list[str]]:
    """Collects, while a plan is built and counted, each warning of a component once; the list is filled at the end.

    torch's own warnings are about how it computes, not about the row: they and other categories pass through.
    """
    said: list[str] = []
    with warnings_told() as told:
        yield said
    said += dict.fromkeys([*told, *leaks_of(plan)])


def leaks_of(plan: ModelPlan) -> list[str]:
    """What the components of a plan declare to leak."""
    return [f"{who} leaks: {how}" for who, how in _leaks(plan)]


def _leaks(plan: ModelPlan) -> Iterator[tuple[str, str]]:
    for stack in plan.stacks:
        used = [block for name, block in stack.blocks.items() if stack.counts.get(name)]
        tops = [stack.residual, stack.final_norm, *(chosen for block in used for chosen in _chosen(block))]
        for chosen in _nested([one for one in tops if one is not None]):
            if (how := leaks(chosen.component.constructor)) is not None:
                yield f"{chosen.component.kind.name} '{chosen.component.label}'", how


def _chosen(block: BlockPlan) -> Iterator[Chosen]:
    yield from (value for value in vars(block).values() if isinstance(value, Chosen))


def _nested(chosen: Sequence[Chosen]) -> Iterator[Chosen]:
    for one in chosen:
        yield one
        yield from _nested([inner for _, inner in one.nested()])
