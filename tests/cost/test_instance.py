"""What one component costs alone, against closed forms."""

from __future__ import annotations

import pytest

from explorer.cost.instance import InstanceCost, Sizes, instance_cost
from explorer.errors import BlueprintError, RefusedError, UsageError
from explorer.registry.kinds import KINDS
from explorer.registry.loading import load_registry

D, HEADS, T = 256, 8, 64
SIZES = Sizes(dim=D, heads=HEADS, layers=3, tokens=T)
ATTENTION = 8 * D * D * T + 4 * T * T * D
VISIBLE = 8 * D * D * T + 2 * T * (T + 1) * D

CLOSED_FORMS = [  # kind, written, parameters, matmul FLOPs with all pairs, with visible ones
    ("norm", "layernorm", 2 * D, 0, 0),
    ("norm", "rmsnorm:affine=false", 0, 0, 0),
    ("activation", "swiglu", 0, 0, 0),
    ("position", "learned:max_tokens=100", 100 * D, 0, 0),
    ("position", "rope", 0, 0, 0),
    ("attention", "mha", 4 * D * D, ATTENTION, VISIBLE),
    ("attention", "mha:bias=true", 4 * D * D + 4 * D, ATTENTION, VISIBLE),
    ("attention", "mha_naive", 4 * D * D, ATTENTION, VISIBLE),
    ("feedforward", "dense:hidden=512", 3 * D * 512, 6 * D * 512 * T, 6 * D * 512 * T),
    ("residual", "add", 0, 0, 0),
    ("residual", "deepnorm", 0, 0, 0),
]


@pytest.mark.parametrize(("kind", "written", "params", "dense", "exact"), CLOSED_FORMS)
def test_cost_is_the_closed_form(kind: str, written: str, params: int, dense: int, exact: int) -> None:
    cost = instance_cost(kind, written, SIZES, load_registry())
    assert (cost.params, cost.matmul_flops, cost.matmul_flops_exact) == (params, dense, exact)


def test_an_attention_has_a_cache() -> None:
    kv = instance_cost("attention", "gqa:kv_heads=2", SIZES, load_registry()).kv
    assert kv is not None
    assert (kv.per_token, kv.cache) == (2 * 2 * (D // HEADS) * 2, 2 * 2 * (D // HEADS) * 2 * T)


def test_a_residual_says_which_site_it_is() -> None:
    assert instance_cost("residual", "add", SIZES, load_registry()).where == "the last of 6 sites in 3 layers"


@pytest.mark.parametrize("component", [c for kind in KINDS for c in load_registry().components(kind)], ids=repr)
def test_every_component_that_needs_no_value_has_a_cost(component: object) -> None:
    parameters = component.schema.parameters.values()  # type: ignore[attr-defined]
    if component.constructor is None or any(p.required for p in parameters):  # type: ignore[attr-defined]
        return
    sizes = Sizes(dim=64, heads=4, layers=2, tokens=16)
    cost = instance_cost(component.kind.name, component.label, sizes, load_registry())  # type: ignore[attr-defined]
    assert isinstance(cost, InstanceCost)
    assert cost.matmul_flops is not None


WRONG = [
    ("gqa", {}, BlueprintError, "kv_heads"),
    ("gqa:kv_heads=3", {}, RefusedError, "heads 8 must divide by kv_heads 3"),
    ("mha:speed=1", {}, BlueprintError, "has no parameter 'speed'"),
    ("mha", {"dtype": "float7"}, UsageError, "dtype must be one of float64"),
]


@pytest.mark.parametrize(("written", "sizes", "error", "message"), WRONG)
def test_wrong_values_are_named(written: str, sizes: dict[str, str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        instance_cost("attention", written, Sizes(dim=D, heads=HEADS, **sizes), load_registry())
