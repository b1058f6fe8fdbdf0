"""Memory of all rows at once is that of each row by itself, with and without recomputation."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.counting import Workbench, count
from explorer.cost.memory.footprint import Footprints
from explorer.cost.sweep.loads import Loads, NotAlike
from explorer.cost.sweep.results import Results
from explorer.cost.sweep.sweep import Sweep
from explorer.errors import BlueprintError, RefusedError
from tests.cost.documents import REGISTRY
from tests.study.test_swept import study_of

TRAIN = [Workload("train", 2, 9, dtype="float32", recompute=mode) for mode in ("none", "selective", "full")]
WORKLOADS = [*TRAIN, Workload(tokens=7), Workload("decode", context=6)]
TOY: dict[str, Any] = {"dim": 32, "heads": 4}
STUDIES: dict[str, dict[str, Any]] = {
    "norms between": {
        "layers": 3,
        "vocab": 40,
        "explore": {
            "norm": ["layernorm", "l2norm", "none"],
            "placement": ["pre", "post", "sandwich"],
            "attention": ["mha", "mha_naive"],
            "head": ["lm", "none"],
        },
    },
    "residuals": {
        "layers": 2,
        "explore": {
            "residual": ["add", "mhc", "hyper_connections", "attnres", "layerscale"],
            "feedforward": ["dense", {"moe": {"experts": 2, "top_k": 1, "hidden": 8}}],
            "norm": ["dyt", "rmsnorm"],
        },
    },
    "dropout": {
        "blocks": {"a": {}, "b": {"layout": {"parallel": {"shared_norm": False}}}},
        "layers": ["a", {"b": 2}, "a"],
        "vocab": 40,
        "dropout": {"attention": 0.1, "activation": 0.1, "sublayer": 0.1, "embedding": 0.1},
        "explore": {
            "attention": ["mha", "mha_naive"],
            "position": ["rope", {"learned": {"max_tokens": 12}}],
            "blocks.b.norm": ["scalenorm", "layernorm"],
        },
    },
}


def compare(sweep: Sweep, alone: Workbench | None = None) -> int:
    """How many rows there are that are counted together, and the same as by themselves."""
    results, bench, found = Results(sweep), alone or Workbench(), 0
    for row in sweep.rows.rows:
        if row.plan is None or sweep.reasons.codes[row.place] >= 0 or sweep.apart[row.place]:
            continue
        counted = count(row.plan, sweep.workloads, sweep.default_tokens, bench)
        assert [cost.memory for cost in results.counted(row.place).costs] == [cost.memory for cost in counted.costs]
        assert all(cost.memory is not None for cost in counted.costs)
        found += 1
    return found


@pytest.mark.parametrize("name", STUDIES)
def test_memory_of_a_study(name: str) -> None:
    blueprint = explorer.load({**TOY, **STUDIES[name]})
    sweep = Sweep(blueprint.combinations(), WORKLOADS)
    assert not sweep.apart.any()
    assert compare(sweep) == len(sweep.rows.rows)


@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_memory_of_any_study(seed: int) -> None:
    random = Random(seed)
    try:
        blueprint = explorer.load(study_of(random), registry=REGISTRY)
        sweep = Sweep(blueprint.combinations(), [random.choice(TRAIN[1:])])
        compare(sweep)
    except (BlueprintError, RefusedError):
        assume(False)


def test_modules_of_another_pass_are_in_the_mode_of_this_one() -> None:
    """Inference before training: dropout inside components must not be left out, nor be in where it is not."""
    explored = {"attention": ["mha", "mha_naive"], "feedforward": ["dense", {"dense": {"hidden": 8}}]}
    fields = {"vocab": 40, "dropout": STUDIES["dropout"]["dropout"], "explore": explored}
    sweep = Sweep(explorer.load({**TOY, **fields}).combinations(), [Workload(tokens=7), TRAIN[0]])
    results = Results(sweep)
    for row in sweep.rows.rows:
        assert row.plan is not None
        assert results.counted(row.place).costs == count(row.plan, sweep.workloads).costs


def test_what_is_no_sum_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    blueprint = explorer.load({**TOY, "explore": {"norm": ["rmsnorm", "layernorm"], "attention": ["mha", "mla"]}})

    def refuses(self: Loads, entry: Any) -> Any:
        if "LayerNorm" in str(entry.part.modules):
            raise NotAlike("depends on the layer")
        return original(self, entry)

    original = Loads.entry
    monkeypatch.setattr(Loads, "entry", refuses)
    sweep = Sweep(blueprint.combinations(), [TRAIN[0]])
    apart = [row.choices["norm"] for row in sweep.rows.rows if sweep.apart[row.place]]
    assert apart == ["layernorm", "layernorm"]
    assert compare(sweep) == 2


def test_each_part_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.cost.memory import footprint

    looks: list[Any] = []
    original = footprint._look
    monkeypatch.setattr(footprint, "_look", lambda part, seen: looks.append(part.role.text) or original(part, seen))
    bench = Workbench()
    rows = explorer.load({**TOY, "layers": 8, "explore": {"norm": ["rmsnorm", "layernorm"]}}).combinations().rows
    counts = []
    for row in (*rows, rows[0]):
        assert row.plan is not None
        count(row.plan, [TRAIN[0]], bench=bench)
        counts.append(len(looks))
    # Embedding, enter, read, norm, attention, write, feedforward, leave at most; then the other norm; then nothing.
    assert counts[0] <= 8
    assert counts[1:] == [counts[0] + 1] * 2
    assert isinstance(bench.footprints, Footprints)
