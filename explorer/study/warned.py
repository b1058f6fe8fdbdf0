"""What a row warns of: what its components say while they are built, and what they declare to leak."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from explorer.assembly.declared import leaks
from explorer.blueprint.plan import BlockPlan, ModelPlan
from explorer.registry.chosen import Chosen


@contextmanager
def warned(plan: ModelPlan) -> Iterator[list[str]]:
    """Collects, while a plan is built and counted, each UserWarning of a component once; the list is filled at the end.

    torch's own warnings are about how it computes, not about the row: they and other categories pass through.
    """
    said: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield said
    for warning in caught:
        if warning.category is UserWarning and not _is_of_torch(warning.filename):
            said.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    said += [f"{who} leaks: {how}" for who, how in _leaks(plan)]
    said[:] = dict.fromkeys(said)


def _is_of_torch(file: str) -> bool:
    import torch

    return Path(torch.__file__).parent in Path(file).parents


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
