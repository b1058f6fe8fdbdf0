"""Memory of whole plans: the sum over parts against a reference walk, whole models, torch's tracker, and by hand."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.distributed._tools.mem_tracker import MemTracker

import explorer
from explorer.assembly.build import build_model
from explorer.assembly.construction import dtype_of
from explorer.assembly.head import LmHead
from explorer.blueprint.load import load
from explorer.blueprint.workload import Workload
from explorer.cost.counting import Workbench, count, settle
from explorer.cost.memory.fake import fake_block, fake_cpu, fake_model
from explorer.cost.memory.live import working_set
from explorer.cost.memory.memory import Memory, Need
from explorer.cost.memory.needs import needed
from explorer.cost.memory.saved import saved_by
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.observing import observe
from explorer.cost.parts.parts import cross_entropy
from explorer.cost.parts.storages import Storages
from explorer.cost.parts.subject import Subjects
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from tests.cost.documents import REGISTRY, document
from tests.cost.in_a_row import InARow, Trained, forward_need, held, walk
from tests.cost.test_saved import GELU, KORTHIKANTI, SMALL_CHANGE, kept_by_hooks

TOKENS = 11


class Reference:
    """The same numbers by a walk through a whole model of fake tensors, part by part."""

    def __init__(self, plan: Any, workload: Workload) -> None:
        self.plan, self.workload = plan, workload
        self.dtype = dtype_of(workload.dtype)

    def inputs(self, tokens: int, source: int | None, grad: bool = False) -> dict[str, torch.Tensor]:
        lengths = {"ids": tokens} | ({} if source is None or self.plan.encoder is None else {"source": source})
        return {name: self._text(length, grad) for name, length in lengths.items()}

    def trained(self) -> Need:
        with fake_cpu():
            model = fake_model(self.plan, self.workload.dtype)
            given = self.inputs(self.workload.tokens, self.workload.source, grad=True)
            seen = Trained(self.workload.recompute, watch=True)
            logits = walk(InARow(seen._look, seen._layer), model, **given)
            if isinstance(model.head, LmHead):
                targets = torch.empty(logits.shape[:2], dtype=torch.int64)
                seen._look(lambda given: cross_entropy(**given), {"logits": logits, "targets": targets}, [])
        return Need(self.forward(), 0, seen.sum.nbytes, seen.sum.recomputed, seen.backward)

    def forward(self) -> int:
        with fake_cpu():
            model = fake_model(self.plan, self.workload.dtype).eval()
            return forward_need(model, **self.inputs(self.workload.tokens, self.workload.source))

    def step(self) -> int:
        full = self.workload
        with fake_cpu():
            model = fake_model(self.plan, full.dtype).eval()
            cache = model.make_cache(full.batch, full.context, dtype_of(full.kv_dtype))
            with torch.no_grad():
                model(**self.inputs(full.context - 1, full.source), cache=cache)
            return forward_need(model, **self.inputs(1, None), cache=cache)

    def _text(self, length: int, grad: bool) -> torch.Tensor:
        shape = self.workload.batch, length
        if self.plan.vocab is not None:
            return torch.empty(shape, dtype=torch.int64)
        return torch.empty(*shape, self.plan.dim, dtype=self.dtype, requires_grad=grad)


def summed(plan: Any, workload: Workload) -> Need:
    """What the sum over parts says of the whole model."""
    bench = Workbench()
    subject = Subjects(plan, bench.workshops).model(workload.dtype)
    observed = observe(subject, workload, bench.observations)
    assert observed.failure is None
    found = needed(observed.entries, bench.footprints, workload.recompute, whole=True)
    assert found.whole is not None, found.failure
    return found.whole


def drawn(seed: int, **words: Any) -> tuple[Any, Workload]:
    random = Random(seed)
    plan = load({**document(random), "layers": 2}, registry=REGISTRY).plan()
    written = Workload(batch=random.choice([1, 2]), dtype=random.choice(["float32", "bfloat16"]), **words)
    return plan, settle(plan, [written])[0]


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_training_needs_what_a_walk_through_the_model_shows(recompute: str, seed: int) -> None:
    try:
        plan, workload = drawn(seed, phase="train", tokens=TOKENS, recompute=recompute)
        found = summed(plan, workload)
    except (BlueprintError, RefusedError):
        assume(False)
    assert found == Reference(plan, workload).trained()


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_decode_step_needs_what_a_walk_through_the_model_shows(seed: int) -> None:
    try:
        plan, workload = drawn(seed, phase="decode", context=TOKENS)
        found = summed(plan, workload)
    except (BlueprintError, RefusedError):
        assume(False)
    assert found.forward == Reference(plan, workload).step()


SMALL = {"dim": 32, "heads": 4, "layers": 2, "vocab": 64}
MODELS = [
    {},
    {"residual": "mhc", "norm": "layernorm"},
    {"attention": {"gqa": {"kv_heads": 2}}, "tie_embeddings": True, "placement": "post", "residual": "deepnorm"},
    {"layers": 3, "residual": "attnres", "dropout": {"sublayer": 0.1, "embedding": 0.1}},
    {"layout": {"parallel": {"shared_norm": False}}, "head": "none"},
]


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_activations_are_what_autograd_keeps_of_a_real_step(fields: dict[str, Any]) -> None:
    plan = load({**SMALL, **fields}).plan()
    model = build_model(plan, device="cpu")
    ids = torch.zeros(2, TOKENS, dtype=torch.int64)

    def step() -> torch.Tensor:
        out = model(ids)
        return cross_entropy(out, torch.zeros_like(ids)) if isinstance(model.head, LmHead) else out

    *_, cost = count(plan, [Workload("train", 2, TOKENS, dtype="float32")]).costs
    assert cost.memory is not None
    assert cost.memory.activations == kept_by_hooks(model, step)


@pytest.mark.parametrize("fields", MODELS, ids=str)
def test_inference_needs_what_torchs_tracker_sees(fields: dict[str, Any]) -> None:
    plan = load({**SMALL, **fields}).plan()
    with fake_cpu():
        model = fake_model(plan, "bfloat16").eval()
        ids = torch.empty(2, 128, dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(model, ids)
        with tracker, torch.no_grad():
            model(ids)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    buffers = sum({id(b): b.numel() * b.itemsize for b in model.buffers()}.values())
    *_, cost = count(plan, [Workload("train", 2, 128)]).costs
    assert cost.memory is not None
    assert cost.memory.inference_peak == snapshot["Total"] - buffers


@pytest.mark.parametrize("fields", [{}, {"norm": "layernorm", "placement": "sandwich"}, {"layout": "parallel"}])
def test_a_block_is_one_layer_alone(fields: dict[str, Any]) -> None:
    """Against a block of fake tensors that is called by itself; and in a model it costs as much."""
    workload = Workload("train", 2, 40)
    plan = load({"dim": 64, "heads": 4, **fields}).plan()
    (cost,) = count(plan, [workload]).costs
    with fake_cpu():
        module = fake_block(plan, dtype="bfloat16")
        x = torch.empty(2, 40, 64, dtype=torch.bfloat16, requires_grad=True)
        saved = saved_by(module, x)
        forward = held(x) + working_set(module.eval(), x)
    assert cost.memory is not None
    parameters = sum(p.numel() * p.itemsize for p in module.block.parameters())
    assert (cost.memory.weights, cost.memory.inference_peak) == (parameters, parameters + forward)
    assert cost.memory.activations == saved.private.saved + sum(c.nbytes for c in saved.crossings if c.saved)
    model = load({"dim": 64, "heads": 4, "layers": 3, "vocab": 100, **fields}).plan()
    assert count(model, [workload]).costs[0].memory == cost.memory


@pytest.mark.parametrize(("fields", "expected"), KORTHIKANTI)
def test_bytes_for_each_token_and_channel(fields: dict[str, Any], expected: float) -> None:
    """See `test_saved`: 34 bytes in Korthikanti et al. 2022 (arXiv:2205.05198), 32 without dropout."""
    plan = load({"dim": 1024, "heads": 16, "position": "none", **fields}).plan()
    (cost,) = count(plan, [Workload("train", tokens=512)]).costs
    assert cost.memory is not None
    assert cost.memory.activations / (512 * 1024) == expected + SMALL_CHANGE


def test_what_layers_keep_adds_up() -> None:
    """Layers with a norm before each sublayer keep their input; what leaves the last one is the final norm's."""
    fields = {**GELU, "dim": 64, "heads": 4, "position": "none", "vocab": 100, "final_norm": "none", "head": "none"}
    workload = Workload("train", tokens=20)
    block, model = count(load({**fields, "layers": 3}).plan(), [workload]).costs
    assert block.memory is not None
    assert model.memory is not None
    assert model.memory.activations == 3 * block.memory.activations + 20 * 8  # and the token ids


def test_recomputation_trades_activations_for_what_one_layer_makes_again() -> None:
    plan = load({**SMALL, "layers": 4}).plan()
    modes = [Workload("train", tokens=64, recompute=mode) for mode in ("none", "selective", "full")]
    none, selective, full = (cost.memory for cost in count(plan, modes).costs if cost.scope == "model")
    assert none is not None
    assert selective is not None
    assert full is not None
    assert full.activations < selective.activations < none.activations
    assert full.peak < none.peak
    assert full.weights == none.weights
    assert full.inference_peak == none.inference_peak


def test_the_optimizer_is_the_workloads() -> None:
    words = ("adamw", "adamw_bf16", "none")
    found = count(load(SMALL).plan(), [Workload("train", tokens=4, optimizer=word) for word in words])
    model = [cost.memory for cost in found.costs if cost.scope == "model"]
    params = found.params.model
    assert params is not None
    assert [memory.optimizer for memory in model if memory] == [12 * params, 4 * params, 0]
    assert {memory.gradients for memory in model if memory} == {2 * params}


def test_a_cache_counts_in_inference() -> None:
    (cost,) = count(load({"dim": 64, "heads": 4}).plan(), [Workload("decode", 2, context=100)]).costs
    assert cost.memory is not None
    cache = 2 * 100 * 2 * 64 * 2
    assert cost.kv.cache == cache
    step = cost.memory.inference_peak - cost.memory.weights - cache
    assert 0 < step < 2 * 64 * 2 * 40  # two tokens


def test_an_encoder_that_does_not_run_holds_its_weights_only() -> None:
    plan = load({"dim": 32, "heads": 4, "vocab": 20, "encoder": {"layers": 2}, "decoder": {"layers": 2}}).plan()
    encoder = count(plan, [Workload("decode", context=5)]).costs[0]
    assert encoder.name == "encoder.block"
    weights = encoder.weight_bytes
    assert encoder.memory == Memory(weights, 0, 0, 0, weights, weights)


FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_what_needs_values_is_unknown_with_the_reason() -> None:
    document = {"dim": 8, "heads": 1, "attention": "none", "feedforward": "loops"}
    plan = explorer.load(document, registry=load_registry((str(FIXTURES / "loops_over_data.py"),))).plan()
    (cost,) = count(plan, [Workload(tokens=3)]).costs
    assert cost.memory is None


@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_a_row_is_not_lost_for_its_memory(phase: Any) -> None:
    registry = load_registry((str(FIXTURES / "misleading_components.py"),))
    plan = load({**SMALL, "feedforward": "only_meta"}, registry=registry).plan()
    for cost in count(plan, [Workload(phase, tokens=3)]).costs:
        assert cost.memory is None
        assert cost.matmul_flops
        (note,) = cost.notes
        assert note.startswith(
            "memory: it cannot be run on tensors without values: ZeroDivisionError: no tensors today"
        )


def test_a_fault_of_our_own_is_not_taken_for_a_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Storages, "_meet")
    with pytest.raises(AttributeError, match="_meet"):
        count(load(SMALL).plan(), [Workload(tokens=3)])


def test_where_new_tensors_lie() -> None:
    x, y, weight = torch.ones(8), torch.ones(4), torch.ones(2)
    new = torch.ones(6)
    fresh = [new[:2], x[1:], weight[:1], new[2:], torch.ones(1)]
    lies = Lies.of(fresh, [x, y, x[2:]], {weight.untyped_storage()._cdata})
    assert lies == Lies((3, 0, None, 3, 4), (24, 4))
