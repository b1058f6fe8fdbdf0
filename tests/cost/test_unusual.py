"""Counts of unusual components and combinations: right, or unknown with the reason, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.blueprint.workload import Workload
from explorer.cost.costs import Counted
from explorer.cost.counting import count
from explorer.registry.loading import load_registry

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLUGINS = (str(FIXTURES / "odd_components.py"), str(FIXTURES / "wide_residuals.py"))
BASE: dict[str, Any] = {"dim": 32, "heads": 4, "vocab": 50, "layers": 3, "feedforward": {"dense": {"hidden": 48}}}
TWO_STACKS = {"encoder": {"layers": 2}, "decoder": {"layers": 3}}


def counted(fields: dict[str, Any], *workloads: Workload) -> Counted:
    return count(explorer.load({**BASE, **fields}, registry=load_registry(PLUGINS)).plan(), workloads)


def test_products_over_a_cache_are_unknown_for_an_attention_without_one() -> None:
    for workload in (Workload("decode", context=1000), Workload("prefill", tokens=4, context=9)):
        *_, model = counted({"attention": "no_cache", "position": "none"}, workload).costs
        assert model.matmul_flops is None
        assert "takes no `cache`" in model.notes[0]
    *_, model = counted({"attention": "no_cache", "position": "none"}, Workload("prefill", tokens=6)).costs
    assert model.matmul_flops == 3 * 6 * (8 * 32 * 32 + 4 * 6 * 32 + 6 * 32 * 48) + 6 * 2 * 32 * 50
    assert model.kv.per_token is None


def test_a_context_behind_a_bidirectional_stack_is_refused() -> None:
    with pytest.raises(explorer.RefusedError, match="causal"):
        counted({"causal": False}, Workload("prefill", tokens=4, context=9))


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"feedforward": "narrow"}, ("feedforward 'narrow'", "(1, 1, 32)", "(1, 1, 1)")),
        ({"norm": "widening"}, ("norm 'widening'", "bfloat16", "float32")),
        ({"feedforward": "raises"}, ("TypeError: a bug of the lab", "odd_components.py:")),
    ],
)
def test_a_broken_promise_names_the_component(fields: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(explorer.PluginError) as caught:
        counted(fields, Workload())
    assert not [part for part in parts if part not in str(caught.value)]


def test_one_broken_component_does_not_stop_the_others() -> None:
    study = {**BASE, "explore": {"feedforward": ["dense", "raises"]}}
    document = explorer.run(explorer.load(study, registry=load_registry(PLUGINS))).to_dict()
    sound, broken = document["combinations"]
    assert sound["costs"]
    assert "a bug of the lab" in broken["skipped"]


def test_a_state_that_grows_shows_the_last_layer_and_the_spread() -> None:
    """Sources of the last layer's two sites: the embedding and the outputs of 2 * 2 sublayers, then one more."""
    block, model = counted({"residual": "remembers"}, Workload("prefill", tokens=6)).costs
    plain, _ = counted({}, Workload("prefill", tokens=6)).costs
    per_source = 2 * 2 * 32 * 6  # scores and mixture, 2 dim FLOPs each, six tokens
    assert block.matmul_flops == plain.matmul_flops + (5 + 6) * per_source
    assert block.varies_by_layer == (plain.matmul_flops + (1 + 2) * per_source, block.matmul_flops)
    assert plain.varies_by_layer is None
    assert model.matmul_flops > 3 * plain.matmul_flops


def test_what_later_layers_read_is_counted_in_the_layer_that_makes_it() -> None:
    fields = {"feedforward": "later_reads", "attention": "none"}
    block, model = counted(fields, Workload("prefill", tokens=6)).costs
    assert block.matmul_flops == 0
    assert block.varies_by_layer == (0, 6 * 2 * 32 * 32)
    assert model.matmul_flops == 6 * 2 * 32 * 32 + 6 * 2 * 32 * 50


def test_weights_that_layers_share_are_active_once() -> None:
    params = counted({"feedforward": "albert"}).params
    assert params.active == params.model


def test_the_encoder_does_not_run_where_its_output_is_cached() -> None:
    costs = {cost.name: cost for cost in counted(TWO_STACKS, Workload("prefill", tokens=4, context=9)).costs}
    assert costs["encoder.block"].matmul_flops == 0
    assert costs["model"].matmul_flops == 3 * costs["decoder.block"].matmul_flops + 4 * 2 * 32 * 50


def test_no_gradient_flows_into_an_encoder_that_nobody_reads() -> None:
    unread = {"encoder": {"layers": 2}, "decoder": {"layers": 3, "cross_attention": "none"}}
    *_, train = counted(unread, Workload("train", tokens=6)).costs
    *_, forward = counted(unread, Workload("prefill", tokens=6)).costs
    *_, alone = counted({}, Workload("prefill", tokens=6)).costs
    *_, alone_train = counted({}, Workload("train", tokens=6)).costs
    assert train.matmul_flops - alone_train.matmul_flops == forward.matmul_flops - alone.matmul_flops


def test_each_stack_has_its_own_position_table() -> None:
    fields = {**TWO_STACKS, "encoder": {"layers": 2, "position": {"learned": {"max_tokens": 16}}}}
    *_, model = counted(fields, Workload("prefill", tokens=20, source=10)).costs
    assert model.workload.tokens == 20
    with pytest.raises(explorer.RefusedError, match="source 17"):
        counted(fields, Workload("prefill", tokens=20, source=17))


def test_a_window_that_the_position_table_never_lets_fill() -> None:
    fields = {"position": {"learned": {"max_tokens": 16}}, "window": 32}
    *_, model = counted(fields, Workload("prefill", tokens=8)).costs
    assert model.kv.per_token == model.kv.per_token_full == 3 * 2 * 32 * 2


def test_rows_of_a_study_share_their_default_length() -> None:
    study = {**BASE, "explore": {"position": ["rope", {"learned": {"max_tokens": 16}}]}}
    rows = explorer.run(explorer.load(study)).to_dict()["combinations"]
    assert [row["costs"][0]["workload"]["tokens"] for row in rows] == [16, 16]


def test_layers_that_cross_attend_alike_are_looked_at_once() -> None:
    from explorer.assembly.build import build_model
    from explorer.cost.parts.likeness import likeness

    plan = explorer.load({**BASE, **TWO_STACKS}).plan()
    layers = build_model(plan, device="meta").stack.layers
    assert likeness(layers[0]) == likeness(layers[1])


@pytest.mark.parametrize("shared_norm", [True, False])
def test_parallel_layers_are_looked_at_once(shared_norm: bool) -> None:
    """With a shared norm the container of the others is empty, which is no reason to tell two layers apart."""
    from explorer.assembly.build import build_model
    from explorer.cost.parts.likeness import likeness

    plan = explorer.load({**BASE, "layers": 2, "layout": {"parallel": {"shared_norm": shared_norm}}}).plan()
    layers = build_model(plan, device="meta").stack.layers
    assert likeness(layers[0]) == likeness(layers[1])
