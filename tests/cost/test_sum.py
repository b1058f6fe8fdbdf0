"""The sum over parts equals one pass of the whole model, in every number, over random combinations."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import explorer
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.audit import Mismatch, audit
from explorer.cost.counting import Workbench, count
from explorer.cost.parts.subject import Subjects, blocks_of
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from tests.cost.documents import PHASES, REGISTRY, document


def audits(plan: ModelPlan, workload: Workload) -> list[Mismatch]:
    """Of the model, or where there is none of each block."""
    bench, subjects = Workbench(), Subjects(plan)
    costs = count(plan, [workload], bench=bench).costs
    blocks = {block.label: block for block in blocks_of(plan)}
    found = []
    for cost in costs:
        if cost.scope == "model" or not plan.whole:
            dtype = workload.dtype
            subject = subjects.model(dtype) if cost.scope == "model" else subjects.block(blocks[cost.name], dtype)
            found += audit(cost, subject, bench.observations)
    return found


@pytest.mark.parametrize("phase", PHASES)
@settings(max_examples=75, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_sum_equals_whole(phase: str, seed: int) -> None:
    random = Random(seed)
    written = Workload(batch=random.choice([1, 2]), dtype=random.choice(["float32", "bfloat16"]), **PHASES[phase])
    try:
        plan = load(document(random), registry=REGISTRY).plan()
        found = audits(plan, written)
    except (BlueprintError, RefusedError):
        assume(False)
    assert not found, "\n".join(map(str, found[:8]))


def test_a_part_that_is_counted_wrong_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.cost.parts import parts

    monkeypatch.setattr(parts, "_run_branch", lambda module, wiring, given, view: (module(module(given["x"])), None))
    plan = explorer.load({"dim": 16, "heads": 4, "layers": 2, "attention": "none"}).plan()
    found = audits(plan, Workload(tokens=4))
    assert {mismatch.part for mismatch in found} == {"block.0.feedforward.branch", "block.1.feedforward.branch"}
    assert "as a sum of parts" in str(found[0])


@pytest.mark.parametrize("phase", PHASES)
def test_what_layers_share_goes_into_their_caches(phase: str) -> None:
    registry = load_registry((str(Path(__file__).parents[1] / "fixtures" / "value_residual.py"),))
    fields = {"dim": 16, "heads": 4, "layers": 3, "vocab": 24, "attention": "value_residual"}
    assert not audits(load(fields, registry=registry).plan(), Workload(dtype="float32", **PHASES[phase]))
