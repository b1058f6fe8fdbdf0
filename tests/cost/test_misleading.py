"""Components that a counter may take for something else: each number follows from what they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.blueprint.blueprint import Blueprint
from explorer.registry.loading import load_registry
from explorer.study import run as running

REGISTRY = load_registry((str(Path(__file__).parents[1] / "fixtures" / "misleading_components.py"),))
DIM, TOKENS = 16, 20
BARE: dict[str, Any] = {
    "dim": DIM, "heads": 2, "norm": "none", "placement": "none", "attention": "none", "position": "none",
    "workloads": [{"tokens": TOKENS, "dtype": "float32"}],
}  # fmt: skip


def bare(**fields: Any) -> Blueprint:
    return explorer.load({**BARE, **fields}, registry=REGISTRY)


@pytest.fixture(params=["one by one", "swept"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of counting rows."""
    monkeypatch.setattr(running, "FEW", 0 if request.param == "swept" else 10**9)


def flops(document: dict[str, Any], scope: str) -> list[int]:
    return [cost["matmul_flops"] for row in document["combinations"] for cost in row["costs"] if cost["scope"] == scope]


def projected(*shares: float) -> int:
    """FLOPs of the layers that project these shares of the tokens."""
    return sum(2 * DIM * DIM * int(share * TOKENS) for share in shares)


@pytest.mark.usefixtures("way")
def test_a_number_that_a_blueprint_writes_decides_what_is_computed() -> None:
    """The first two rows do the same, which says nothing of the others."""
    capacities = [0.25, 0.26, 0.9, 0.5, 0.251]
    blueprint = bare(feedforward="depths", explore={"feedforward.capacity": capacities})
    document = explorer.run(blueprint, audit=0).to_dict()
    assert flops(document, "block") == [projected(capacity) for capacity in capacities]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("layers", [4, 24, 60])
def test_a_number_that_falls_with_depth_is_followed(layers: int) -> None:
    document = explorer.run(bare(feedforward="falling", layers=layers), audit=0).to_dict()
    shares = [0.9 - 0.4 * layer / (layers - 1) for layer in range(layers)]
    assert flops(document, "model") == [projected(*shares)]
    assert flops(document, "block") == [projected(shares[-1])]


@pytest.mark.usefixtures("way")
def test_a_sum_that_an_audit_refutes_is_counted_anew() -> None:
    document = explorer.run(bare(feedforward="waist", layers=6), audit=1).to_dict()
    assert document["audit"] == {"rows": 1, "planned": 1, "mismatches": [], "anew": True}
    assert flops(document, "model") == [projected(0.9, 0.9, 0.3, 0.3, 0.3, 0.9)]
    sound = explorer.run(bare(feedforward="dense", layers=6), audit=1).to_dict()
    assert not sound["audit"]["anew"]


def test_few_of_many_layers_that_differ_by_a_factor_are_looked_at() -> None:
    """`differential` starts each layer with another lambda."""
    from explorer.cost.counting import Workbench, count

    bench = Workbench()
    plan = explorer.load({"dim": DIM, "heads": 2, "layers": 40, "attention": "differential"}).plan()
    count(plan, [], bench=bench)
    looked = {id(seen) for seen in bench.observations._seen.values()}
    assert len(looked) < 20 < 40 < len(bench.observations._seen)


TRAIN = {"phase": "train", "tokens": TOKENS, "dtype": "float32"}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("normed", [False, True])
def test_a_backward_inside_of_a_forward_counts(normed: bool) -> None:
    """Two products forward and two back to x; in training each has two gradients, the norm's is differentiated too."""
    fields = {"feedforward": {"energy": {"normed": normed}}, "layers": 2}
    workloads = [{"tokens": TOKENS, "dtype": "float32"}, TRAIN]
    document = explorer.run(bare(**fields, workloads=workloads), audit=1).to_dict()
    product = 2 * TOKENS * DIM * 2 * DIM
    assert flops(document, "block") == [4 * product, 12 * product]
    assert not document["audit"]["anew"]
    prefill, train = (cost for cost in document["combinations"][0]["costs"] if cost["scope"] == "block")
    assert prefill["incomplete"] == []
    assert train["incomplete"] == (["layer_norm_backward_backward x1"] if normed else [])
    assert train["memory"]["activations"] > 0


@pytest.mark.usefixtures("way")
def test_frozen_weights_have_no_gradient_and_no_state() -> None:
    rank = 3
    fields = {"feedforward": {"adapted": {"rank": rank}}, "layers": 2, "workloads": [TRAIN]}
    document = explorer.run(bare(**fields), audit=1).to_dict()
    frozen, trained = DIM * DIM, 2 * DIM * rank
    block, model = document["combinations"][0]["costs"]
    for cost, layers in ((block, 1), (model, 2)):
        memory = cost["memory"]
        assert memory["weights"] == layers * 4 * (frozen + trained)
        assert memory["gradients"] == layers * 4 * trained
        assert memory["optimizer"] == layers * 8 * trained
    assert document["combinations"][0]["params"]["model"] == 2 * (frozen + trained)


@pytest.mark.usefixtures("way")
def test_a_causal_bias_hides_what_it_hides() -> None:
    workloads = [{"tokens": TOKENS, "dtype": "float32"}, TRAIN]
    result = explorer.run(bare(feedforward="biased", layers=2, workloads=workloads), audit=1, crosscheck=True)
    (row,) = result.to_dict()["combinations"]
    linear, per_pair = 2 * TOKENS * DIM * DIM, 4 * DIM
    for cost, times in zip(row["costs"], (1, 2, 3, 6), strict=True):
        assert cost["matmul_flops"] == times * (linear + per_pair * TOKENS * TOKENS)
        assert cost["matmul_flops_exact"] == times * (linear + per_pair * TOKENS * (TOKENS + 1) // 2)
        assert cost["memory"]["peak"]
    assert row["params"]["active"] == row["params"]["model"]
    assert not result.failed, "another counter prints what nobody explains, or the sum is no whole"


@pytest.mark.usefixtures("way")
def test_a_function_that_meta_does_not_have_leaves_its_reason() -> None:
    fields = {"feedforward": "no_meta", "layers": 2, "explore": {"bias": [True, False]}}
    for row in explorer.run(bare(**fields), audit=1).to_dict()["combinations"]:
        for cost in row["costs"]:
            (note,) = cost["notes"]
            assert cost["matmul_flops"] is None
            assert note.startswith(
                "matmul_flops: it cannot be run on meta: RuntimeError: User specified an unsupported"
            )
        assert row["params"]["model"] == 2 * DIM * (DIM + 1)


@pytest.mark.usefixtures("way")
def test_a_workload_that_cannot_be_run_does_not_lose_the_others() -> None:
    huge = {"tokens": 2**31 - 1, "batch": 2**31 - 1, "dtype": "float32"}
    fields = {"feedforward": "dense", "layers": 2, "workloads": [*BARE["workloads"], huge]}
    document = explorer.run(bare(**fields, explore={"norm": ["rmsnorm", "layernorm"]}), audit=2).to_dict()
    for row in document["combinations"]:
        here, _, block, model = row["costs"]
        assert here["matmul_flops"] > 0
        for cost in (block, model):
            assert cost["matmul_flops"] is None
            assert cost["notes"][0].startswith("matmul_flops: its tensors are too large: RuntimeError: Storage size")
    assert (document["audit"]["rows"], document["audit"]["mismatches"]) == (2, [])


@pytest.mark.usefixtures("way")
def test_what_a_module_keeps_does_not_reach_the_next_look() -> None:
    workloads = [{"tokens": TOKENS, "dtype": "float32"}, TRAIN, {"tokens": 9, "batch": 2, "dtype": "float32"}]
    fields: dict[str, Any] = {"norm": "lazy", "placement": "pre", "attention": "mha", "layers": 2}

    def costs(*some: dict[str, Any]) -> list[dict[str, Any]]:
        document = explorer.run(bare(**fields, workloads=list(some)), audit=1).to_dict()
        assert not document["audit"]["mismatches"]
        assert not document["audit"]["anew"]
        return document["combinations"][0]["costs"]

    alone = [cost for workload in workloads for cost in costs(workload)]
    assert costs(*workloads) == alone
    backwards = costs(*reversed(workloads))
    assert sorted(map(str, backwards)) == sorted(map(str, alone))
    assert all(cost["memory"]["peak"] for cost in alone)


@pytest.mark.usefixtures("way")
def test_a_hook_is_part_of_a_module() -> None:
    document = explorer.run(bare(feedforward="watched", layers=5), audit=0).to_dict()
    assert flops(document, "model") == [projected(1, 2, 1, 2, 1)]
    (block, _) = document["combinations"][0]["costs"]
    assert block["varies_by_layer"] == [projected(1), projected(2)]
