"""The sum over parts equals one pass of the whole model, in every number, over random combinations."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import explorer
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import Workload
from explorer.cost.audit import Mismatch, audit
from explorer.cost.counting import Workbench, count
from explorer.cost.subject import Subjects, blocks_of
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from explorer.testing.toy import Toy

REGISTRY = load_registry()
KINDS = ("norm", "activation", "attention", "feedforward", "position", "residual")
BLOCK: dict[str, list[Any]] = {
    "placement": ["pre", "post", "sandwich", "res_post", "none"],
    "layout": ["sequential", "sequential", {"parallel": {"shared_norm": True}}, {"parallel": {"shared_norm": False}}],
    "bias": [True, False],
    "window": [None, None, 2],
    "dropout": [{}, {}, {"attention": 0.1, "activation": 0.1, "sublayer": 0.1, "embedding": 0.1}],
}
LAYERS: list[Any] = [1, 3, ["a", {"b": 2}], ["a", "b", "a"], ["block", "a"]]
PHASES = {
    "prefill": {"phase": "prefill", "tokens": 5},
    "behind a context": {"phase": "prefill", "tokens": 3, "context": 7},
    "decode": {"phase": "decode", "context": 6},
    "train": {"phase": "train", "tokens": 5},
}


@cache
def components(kind: str) -> list[dict[str, Any]]:
    """Every installed one, with small values of its required parameters."""
    return [{c.label: dict(Toy(c, REGISTRY).params)} for c in REGISTRY.components(kind)]


def document(random: Random) -> dict[str, Any]:
    """A blueprint of any components, with uneven stacks, one stack or two."""

    def some(names: tuple[str, ...] | list[str], share: float) -> dict[str, Any]:
        return {name: value(name) for name in names if random.random() < share}

    def value(name: str) -> Any:
        if name in BLOCK:
            return random.choice(BLOCK[name])
        return random.choice(components(name))

    def block() -> dict[str, Any]:
        return some([*KINDS[:4], *BLOCK], 0.2)

    def stack() -> dict[str, Any]:
        return {"layers": random.choice(LAYERS), **some(["residual"], 0.7), **some([*KINDS[:5], *BLOCK], 0.35)}

    top = {
        "dim": 16,
        "heads": 4,
        "vocab": random.choice([None, 24]),
        "tie_embeddings": False,
        "blocks": {"a": block(), "b": block()},
    }
    if top["vocab"] and random.random() < 0.4:
        top["tie_embeddings"] = True
    if random.random() < 0.3:
        return {**top, "encoder": stack(), "decoder": stack()}
    one = stack()
    if top["vocab"] is None and random.random() < 0.3:
        del one["layers"]  # blocks alone
    return {**top, **one}


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
    from explorer.cost import parts

    monkeypatch.setattr(parts, "_run_branch", lambda module, wiring, given, view: (module(module(given["x"])), None))
    plan = explorer.load({"dim": 16, "heads": 4, "layers": 2, "attention": "none"}).plan()
    found = audits(plan, Workload(tokens=4))
    assert {mismatch.part for mismatch in found} == {"block.0.feedforward.branch", "block.1.feedforward.branch"}
    assert "as a sum of parts" in str(found[0])
