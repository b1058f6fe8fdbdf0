"""The closed form that a component may declare, against what is counted."""

from __future__ import annotations

import torch
from torch import nn

from explorer.blueprint.workload import Workload
from explorer.cost.crosscheck import closed_form
from explorer.cost.crosscheck.calls import Calls
from explorer.cost.crosscheck.one_pass import one_pass
from explorer.cost.crosscheck.ours import Ours
from explorer.cost.crosscheck.stage import Place, Stage
from explorer.cost.ledger.trace import Trace
from explorer.testing.expect import expect, not_declared
from explorer.testing.toy import BATCH, TOKENS, Toy

_WORKLOADS = (
    Workload("prefill", BATCH, TOKENS, dtype="float32"),
    Workload("train", BATCH, TOKENS, dtype="float32"),
    Workload("decode", BATCH, context=TOKENS, dtype="float32"),
)


def closed_form_agrees(toy: Toy) -> None:
    """a declared `closed_form` to say what is counted, in prefill, train and decode, with all pairs and visible ones"""
    place = Place.of(toy.plan(), "block")
    for workload in _WORKLOADS:
        stage = Stage(place, workload.settled(), "meta")
        if not isinstance(_component(stage, toy.kind), closed_form.DeclaresClosedForm):
            not_declared(f"{toy.kind} '{toy.component.label}' declares no closed form")
        if not (stage.cached and "cache" in stage.stack.intake.limits):
            _expect_same(stage)


def _component(stage: Stage, kind: str) -> nn.Module:
    """What stands for the kind in the layer."""
    first, *_, last = stage.layer.parts()
    found: dict[str, nn.Module] = {
        "attention": first.branches[0],
        "feedforward": last.branches[0],
        "residual": first.residual,
    }
    return found[kind]


def _expect_same(stage: Stage) -> None:
    run = one_pass(stage)
    with Trace() as trace:
        run.all()
    counted = trace.counts()
    with torch.inference_mode():
        written = one_pass(stage)
        with Calls() as calls:
            written.forward()
    ours = Ours(counted.matmul_flops, counted.matmul_flops_exact, None)
    for tool in closed_form.tools(stage, calls, ours):
        if tool.note:
            not_declared(tool.note)
        wanted = f"{tool.quantity} of {stage.workload.phase} to be {tool.ours:,} by the closed form, as counted"
        expect(tool.explained is True, wanted, f"{tool.printed:,}")
