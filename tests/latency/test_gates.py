"""What is declared equal must agree in the phase that is timed: its cache, and its gradients in training."""

import pytest

from explorer.blueprint.workload import Workload
from explorer.latency import gates as gates_module
from explorer.latency.gates import gates
from explorer.registry.loading import load_registry
from explorer_attentions.mha_naive import NaiveMultiHeadAttention
from tests.latency.jobs import FIELDS, job, recipe

DTYPES = ["float32", "bfloat16"]
PHASES = {
    "prefill": {"tokens": 100},
    "prompt": {"phase": "prefill", "tokens": 100, "context": 500},
    "decode": {"context": 500},
    "first token": {"phase": "decode", "context": 1},
    "train": {"tokens": 100},
}


def attentions(name, dtype="float32", **fields):
    workload = Workload(**{"phase": name, "batch": 3, "dtype": dtype, **PHASES[name]}).settled()
    both = [recipe(key, FIELDS | fields | {"attention": key}, workload) for key in ("mha_naive", "mha")]
    return job(*both, baseline="mha")


def gate(made):
    return gates(made, load_registry(), lambda progress: None)["mha_naive"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PHASES)
def test_equals_pass_in_every_phase(name, dtype):
    found = gate(attentions(name, dtype, bias=True))
    assert found["ok"], found["reason"]


def test_dropout_is_left_out():
    assert gate(attentions("train", dropout={"attention": 0.5, "sublayer": 0.5}))["ok"]


@pytest.fixture
def changed(monkeypatch):
    """The naive attention, with its forward in other hands."""
    original = NaiveMultiHeadAttention.forward

    def change(forward):
        def changed(self, x, context=None, mask=None, cache=None):
            return forward(self, original(self, x, context, mask, cache), cache)

        monkeypatch.setattr(NaiveMultiHeadAttention, "forward", changed)

    return change


def wrong_with_a_cache(self, y, cache):
    return y if cache is None else 1.01 * y


def wrong_input_gradient(self, y, cache):
    return y - 0.01 * (y - y.detach())


def wrong_weight_gradient(self, y, cache):
    if y.requires_grad:
        self.v[1].weight.register_hook(lambda slope: 1.01 * slope)
    return y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("wrong", "phases"),
    [
        (wrong_with_a_cache, {"prompt", "decode", "first token"}),
        (wrong_input_gradient, {"train"}),
        (wrong_weight_gradient, {"train"}),
    ],
)
def test_what_is_wrong_in_one_phase_is_seen_in_that_phase(changed, wrong, phases, dtype):
    changed(wrong)
    found = {name: gate(attentions(name, dtype)) for name in PHASES}
    assert {name for name, one in found.items() if not one["ok"]} == phases
    assert all(
        one["reason"] is None or one["reason"].startswith("not compared: results differ") for one in found.values()
    )


def test_what_a_narrow_dtype_hides_is_seen_in_a_wider_one(changed):
    changed(lambda self, y, cache: 1.0001 * y)
    assert gate(attentions("prefill", "bfloat16"))["reason"].startswith("not compared: results differ")


@pytest.mark.parametrize(("phase", "fits"), [("prefill", True), ("train", False)])
def test_what_has_no_room_is_not_tried(monkeypatch, phase, fits):
    """On a CPU the system would end the worker, and with it all that was to be timed."""
    monkeypatch.setattr(gates_module, "free_bytes", lambda device: 40_000)
    found = gate(attentions(phase))
    assert (found["ok"], found["reason"]) == (
        fits,
        None if fits else "not compared: comparing takes 0.0 GiB, 0.0 GiB are free on cpu",
    )


def test_what_is_not_finite_is_json(changed):
    changed(lambda self, y, cache: y / 0)
    assert gate(attentions("prefill")) == {
        "error": None,
        "bound": pytest.approx(1e-6, rel=1),
        "with": "mha",
        "ok": False,
        "reason": "not compared: results are not finite",
    }


def test_a_phase_that_cannot_run_has_its_reason():
    workload = Workload("train", tokens=4, dtype="float32", recompute="full").settled()
    both = [recipe(key, FIELDS | {"attention": key}, workload) for key in ("mha_naive", "mha")]
    assert "recompute full is counted only" in gate(job(*both, baseline="mha"))["reason"]
