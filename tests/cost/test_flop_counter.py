"""`matmul_flops` is what torch's FlopCounterMode says of the whole model on meta, wherever it knows the operator.

Three operators it does not know, or counts wrong, in torch 2.13. Formulas by hand stand in for them here:
`explorer::grouped` and `F.grouped_mm` are 0 for it; `baddbmm_`, in place, is 0, though `baddbmm` is not; the weight's
gradient of a convolution with groups counts as if all channels were one group, C times too much. And attention sinks
are one more key in more channels where torch takes SDPA apart: components that have them by default go without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import explorer
from explorer.assembly.build import build_model
from explorer.assembly.cache import Cache
from explorer.assembly.construction import dtype_of
from explorer.assembly.model import Model
from explorer.blueprint.plan import ModelPlan
from explorer.blueprint.workload import DTYPE_BYTES, Workload
from explorer.cost.counting import settle
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.observing import observe
from explorer.cost.parts.subject import Subjects
from tests.cost.components import COMPONENTS, Installed

Shape = tuple[int, ...]


def grouped(x: Shape, weight: Shape, offsets: Shape, **_: Any) -> int:
    """Each row meets the matrix of its own group."""
    return 2 * x[0] * weight[1] * weight[2]


def grouped_outer(x: Shape, y: Shape, offsets: Shape, **_: Any) -> int:
    """Each row gives one outer product, added up by group."""
    return 2 * x[0] * x[1] * y[1]


def baddbmm(total: Shape, left: Shape, right: Shape, **_: Any) -> int:
    return 2 * prod(left) * right[-1]


def convolution_backward(grad: Shape, x: Shape, weight: Shape, *settings: Any, out_shape: Any = None) -> int:
    """2 x outputs x C_in / groups x K for each of the gradients of the input and the weight."""
    return sum(settings[-1][:2]) * 2 * prod(grad) * prod(weight[1:])


CORRECTED: Mapping[Any, Any] = {
    torch.ops.explorer.grouped: grouped,
    torch.ops.explorer.grouped_outer: grouped_outer,
    torch.ops.aten.baddbmm_: baddbmm,
    torch.ops.aten.convolution_backward: convolution_backward,
}


def counted_by_torch(plan: ModelPlan, workload: Workload) -> int:
    """A model built for this alone, called as users call it."""
    dtype, train = dtype_of(workload.dtype), workload.phase == "train"
    model = build_model(plan, device="meta", dtype=dtype).train(train)
    tokens, held = workload.tokens or 0, (workload.context or 0) - (workload.tokens or 0)
    cache = _filled(model, workload.batch, held, tokens, dtype) if held else None
    ids = _ids(workload.batch, tokens)
    with torch.set_grad_enabled(train), FlopCounterMode(display=False, custom_mapping=dict(CORRECTED)) as counter:
        out = model(ids, cache=cache)
        if train:
            out.backward(torch.empty_like(out))
    return counter.get_total_flops()


def _ids(batch: int, tokens: int) -> torch.Tensor:
    return torch.zeros(batch, tokens, dtype=torch.int64, device="meta")


def _filled(model: Model, batch: int, held: int, tokens: int, dtype: torch.dtype) -> Cache:
    cache = model.make_cache(batch, held + tokens, dtype, "meta")
    with torch.no_grad():
        model(_ids(batch, held), cache=cache)
    return cache


def counted_here(plan: ModelPlan, workload: Workload) -> int:
    subject = Subjects(plan).model(workload.dtype)
    found = observe(subject, workload, Observations())
    assert found.whole is not None, found.failure
    assert found.whole.counts.incomplete == ()
    return found.whole.counts.matmul_flops


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    """Widths, heads, a window, biases and dropout; 1 or 2 layers."""
    heads, head_dim = draw(st.sampled_from([2, 4, 6])), draw(st.sampled_from([4, 8]))
    rate = draw(st.sampled_from([0.0, 0.0, 0.1]))
    return {
        "dim": heads * draw(st.sampled_from([4, 6, 8])),
        "heads": heads,
        "head_dim": head_dim,
        "layers": draw(st.integers(1, 2)),
        "vocab": draw(st.integers(8, 40)),
        "bias": draw(st.booleans()),
        "dropout": {"attention": rate, "sublayer": rate},
    }


@st.composite
def workloads(draw: st.DrawFn, phase: str) -> Workload:
    batch, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    dtype = draw(st.sampled_from(list(DTYPE_BYTES)))
    if phase == "decode":
        return Workload("decode", batch, context=draw(st.integers(2, 20)), dtype=dtype)
    context = tokens + draw(st.integers(1, 9)) if phase == "behind a context" else None
    return Workload("train" if phase == "train" else "prefill", batch, tokens, context, dtype=dtype)


def plan_of(component: Installed, changes: Mapping[str, Any]) -> ModelPlan:
    fields = component.fields()
    name, params = next(iter(fields[component.kind].items()))
    if "sinks" in component.toy.component.schema.parameters:
        params = {**params, "sinks": False}
    return explorer.load({**changes, component.kind: {name: params}, "placement": component.placements[0]}).plan()


def changed(draw: st.DrawFn, component: Installed) -> dict[str, Any]:
    changes = draw(sizes())
    if component.kind == "attention" and "window" in component.toy.component.schema.picks:
        changes["window"] = draw(st.sampled_from([None, 1, 3, 12]))
    return changes


@pytest.mark.parametrize("phase", ["prefill", "behind a context", "decode", "train"])
@pytest.mark.parametrize("component", COMPONENTS, ids=str)
def test_products_are_those_of_torch(component: Installed, phase: str) -> None:
    """Every installed component; those that hold products more often."""

    @settings(max_examples=1 if component.kind in ("norm", "activation") else 2, deadline=None)
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        plan = plan_of(component, changed(data.draw, component))
        (workload,) = settle(plan, [data.draw(workloads(phase))])
        assert counted_here(plan, workload) == counted_by_torch(plan, workload) > 0

    check()


def meta(*shape: int, grad: bool = False) -> Tensor:
    return torch.empty(shape, device="meta", requires_grad=grad)


def by_groups() -> None:
    offsets = torch.empty(2, dtype=torch.int32, device="meta")
    out = torch.ops.explorer.grouped(meta(6, 8, grad=True), meta(2, 8, 16, grad=True), offsets)
    out.backward(torch.empty_like(out))


def convolved() -> None:
    out = F.conv1d(meta(2, 6, 9, grad=True), meta(6, 1, 4, grad=True), groups=6)
    out.backward(torch.empty_like(out))


WRONG: Mapping[str, tuple[Callable[[], Any], int, int]] = {
    "grouped": (by_groups, 0, 3 * 2 * 6 * 8 * 16),
    "baddbmm_": (lambda: meta(2, 3, 5).baddbmm_(meta(2, 3, 4), meta(2, 4, 5)), 0, 2 * 2 * 3 * 4 * 5),
    # Forward, the gradient of the input, and that of the weight as if 6 channels met 6.
    "convolution_backward": (convolved, (1 + 1 + 6) * 2 * 2 * 6 * 6 * 4, 3 * 2 * 2 * 6 * 6 * 4),
}


@pytest.mark.parametrize("operator", WRONG)
def test_what_torch_counts_wrong(operator: str) -> None:
    """When this fails torch has learnt: take the correction out."""
    run, alone, corrected = WRONG[operator]
    plain, mended = FlopCounterMode(display=False), FlopCounterMode(display=False, custom_mapping=dict(CORRECTED))
    with plain:
        run()
    with mended:
        run()
    assert (plain.get_total_flops(), mended.get_total_flops()) == (alone, corrected)
    with Trace() as trace:
        run()
    assert trace.counts().matmul_flops == corrected
