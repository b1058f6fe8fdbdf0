"""What is seen besides times: whether results agree, gradients included, and reasons where nobody can say."""

import json
import math

import pytest
import torch
from torch import nn

from explorer.blueprint.workload import Workload
from explorer.latency import facts as facts_module
from explorer.latency.arms import Arm, Candidate
from explorer.latency.facts import facts_of, gated, not_looked_at
from explorer.latency.implementation import Eager
from explorer.latency.parity import Agreement
from explorer.latency.runner import Feed, ready
from explorer.latency.temperature import Temperature


class Layer(nn.Module):
    def __init__(self, device, dtype, rate=0.0):
        super().__init__()
        self.map = nn.Linear(8, 8, device=device, dtype=dtype)
        self.dropout = nn.Dropout(rate)

    def forward(self, x, source=None):
        return self.dropout(self.map(x))


class Changed(Eager):
    """A module as a compiler might get it: `change` of its result."""

    def __init__(self, module, change):
        super().__init__(module)
        self.call = lambda *given: change(module(*given))

    def facts(self):
        return {"compile_s": 1.5}


def arms(phase, change, impls=("compile",), **options):
    def build():
        workload = Workload(phase, batch=2, tokens=4, dtype="float32").settled()
        return ready(lambda *where: Layer(*where, **options), workload, Feed(8), device="cpu")

    candidate, step = Candidate("a", build), build()
    made = {"eager": Eager(step.module), "compile": Changed(step.module, change)}
    return {
        impl: Arm(candidate, impl, step, (step.through(made[impl].call),), made[impl], Temperature(), 1.0)
        for impl in impls
    }


def parity(*args, **options):
    facts = facts_of(arms(*args, **options), "cpu")
    json.dumps(facts, allow_nan=False)
    return facts["compile"]["parity"]


def same(y):
    return y


def other_result(y):
    return 1.01 * y


def other_gradient(y):
    return y - 0.01 * (y - y.detach())


@pytest.mark.parametrize("impls", [("compile",), ("eager", "compile")])
@pytest.mark.parametrize(
    ("phase", "change", "ok"),
    [
        ("prefill", same, True),
        ("prefill", other_result, False),
        ("train", same, True),
        ("train", other_result, False),
        ("train", other_gradient, False),
    ],
)
def test_compiled_code_is_held_against_eager_code_be_that_timed_or_not(impls, phase, change, ok):
    found = parity(phase, change, impls=impls)
    assert (found["ok"], found["with"]) == (ok, "eager")
    assert ok or found["reason"].startswith("not compared: results differ by ")


def test_eager_code_has_no_gate():
    assert "parity" not in facts_of(arms("prefill", same, impls=("eager",)), "cpu")["eager"]


@pytest.mark.parametrize(
    ("change", "rate", "reason"),
    [
        (lambda y: y / 0, 0.0, "not compared: results are not finite"),
        (same, 0.5, "not compared: two eager runs differ, as with dropout"),
    ],
)
def test_the_true_reason_is_told(change, rate, reason):
    assert parity("train", change, rate=rate)["reason"] == reason


def test_eager_results_that_are_not_finite_are_no_dropout(monkeypatch):
    monkeypatch.setattr(Layer, "forward", lambda self, x, source=None: self.map(x) / 0)
    found = parity("train", same)
    assert (found["reason"], found["error"], found["bound"]) == ("not compared: results are not finite", None, None)


def test_a_gate_that_cannot_be_tried_is_closed(monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(facts_module, "compare_runs", fails)
    found = parity("prefill", same)
    assert (found["ok"], found["reason"]) == (False, "out of memory while comparing: CUDA out of memory.")


@pytest.mark.parametrize("agreement", [Agreement(math.nan, math.nan), Agreement(math.inf, 0.1)])
def test_a_gate_is_json(agreement):
    found = json.loads(json.dumps(gated(lambda: agreement, "base"), allow_nan=False))
    assert (found["error"], found["ok"], found["with"]) == (None, False, "base")


def test_what_nobody_looked_at_lets_no_comparison_through():
    assert not_looked_at("eager", "lost") == {"sdpa": None, "sdpa_note": "lost", "peak": None, "peak_note": "lost"}
    assert not_looked_at("compile", "lost")["parity"]["ok"] is False
