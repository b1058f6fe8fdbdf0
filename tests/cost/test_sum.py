"""The sum over parts equals one pass of the whole model, in every number, over random combinations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import explorer
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost import audit as auditing
from explorer.cost.audit import Mismatch, audit
from explorer.cost.costs import Cost
from explorer.cost.counting import Workbench, count
from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.subject import Subjects, blocks_of
from explorer.cost.parts.whole import Whole
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from tests.cost.documents import PHASES, REGISTRY, document


def audits(plan: ModelPlan, workload: Workload) -> list[Mismatch]:
    """Of the model with its blocks, or where there is none of each block."""
    bench, subjects = Workbench(), Subjects(plan)
    counted = count(plan, [workload], bench=bench)
    if plan.whole:
        return audit(counted.costs, counted.params, subjects.model(workload.dtype), bench.observations)
    found = []
    blocks = {block.label: block for block in blocks_of(plan)}
    for cost in counted.costs:
        block = blocks[cost.name]
        if not (block.in_encoder and cost.workload.source_is_cached):  # it does not run
            subject = subjects.block(block, workload.dtype)
            found += audit([cost], counted.params, subject, bench.observations)
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


MODEL = {"dim": 16, "heads": 4, "layers": 3, "vocab": 24}
TRAIN = Workload("train", tokens=4)


def test_parts_are_compared_where_their_sums_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    real = auditing.run_whole

    def one_kernel_from_norm_to_attention(*given: Any) -> Whole:
        whole = real(*given)
        parts = dict(whole.parts)
        for part, more in (("block.1.attention.norm", -1), ("block.1.attention.branch", 1)):
            parts[part] = replace(parts[part], kernels=parts[part].kernels + more)
        return replace(whole, parts=parts)

    monkeypatch.setattr(auditing, "run_whole", one_kernel_from_norm_to_attention)
    found = audits(explorer.load(MODEL).plan(), TRAIN)
    assert {(one.part, one.number) for one in found} == {
        ("block.1.attention.norm", "kernels"),
        ("block.1.attention.branch", "kernels"),
    }


def test_nothing_is_found_where_all_is_as_reported() -> None:
    assert not audits(explorer.load(MODEL).plan(), TRAIN)


def more(counts: Counts) -> Counts:
    return replace(counts, cheap_ops=counts.cheap_ops + 1)


MEMORY = ("weights", "gradients", "optimizer")
MISREPORTED: dict[str, tuple[str, Callable[[Cost], Cost]]] = {
    "counts": ("cheap_ops", lambda cost: replace(cost, counts=more(cost.counts))),
    "breakdown": ("cheap_ops", lambda cost: replace(cost, by_kind=dict(cost.by_kind) | {"norm": Counts(cheap_ops=1)})),
    "weights": ("weight_bytes", lambda cost: replace(cost, weight_bytes=cost.weight_bytes + 1)),
    "cache": ("kv_cache_bytes", lambda cost: replace(cost, kv=replace(cost.kv, cache=cost.kv.cache + 1))),
} | {
    name: (f"memory.{name}", partial(lambda name, cost: replace(cost, memory=replace(cost.memory, **{name: 1})), name))
    for name in MEMORY
}


@pytest.mark.parametrize("scope", ["block", "model"])
@pytest.mark.parametrize("what", MISREPORTED)
def test_a_number_that_is_misreported_is_named(what: str, scope: str) -> None:
    number, wrong = MISREPORTED[what]
    plan, bench = explorer.load(MODEL).plan(), Workbench()
    counted = count(plan, [TRAIN], bench=bench)
    costs = [wrong(cost) if cost.scope == scope else cost for cost in counted.costs]
    found = audit(costs, counted.params, Subjects(plan).model(), bench.observations)
    assert {(one.scope, one.number) for one in found} >= {(scope, number)}
    assert {one.scope for one in found} == {scope}


def test_parameters_are_those_of_the_modules() -> None:
    plan, bench = explorer.load(MODEL).plan(), Workbench()
    counted = count(plan, [TRAIN], bench=bench)
    params = replace(counted.params, model=1, blocks=(replace(counted.params.blocks[0], params=2),))
    found = audit(counted.costs, params, Subjects(plan).model(), bench.observations)
    layer = 4 * 16 * 16 + 3 * 16 * 64 + 2 * 16
    assert [(one.name, one.number, one.summed, one.whole) for one in found] == [
        ("block", "params", 2, layer),
        ("model", "params", 1, 3 * layer + 16 + 2 * 24 * 16),
    ]


@pytest.mark.parametrize("phase", PHASES)
def test_what_layers_share_goes_into_their_caches(phase: str) -> None:
    registry = load_registry((str(Path(__file__).parents[1] / "fixtures" / "value_residual.py"),))
    fields = {"dim": 16, "heads": 4, "layers": 3, "vocab": 24, "attention": "value_residual"}
    assert not audits(load(fields, registry=registry).plan(), Workload(dtype="float32", **PHASES[phase]))
