"""Memory of a workload: its arithmetic, torch's optimizer, torch's checkpoints, and torch's tracker of a train step."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from explorer.assembly.build import build_model
from explorer.blueprint.load import load
from explorer.blueprint.workload import Workload
from explorer.cost.memory.fake import fake_cpu, fake_model
from explorer.cost.memory.memory import Memory, Need, memory
from explorer.cost.memory.saved import keeps_output
from explorer.cost.parts.storages import Storages
from explorer.cost.stored import Stored, parameters_of
from tests.cost.components import COMPONENTS
from tests.cost.in_a_row import Trained, forward_need, held

PARAMETERS = {Stored(torch.bfloat16): 1000, Stored(torch.float32): 10}
NEED = Need(forward=7, cache=5, activations=100, recomputed=20, backward=3)


def of(**words):
    return memory(Workload(**words).settled(), PARAMETERS, NEED)


def test_without_training_there_is_only_the_forward():
    held = 2 * 1000 + 4 * 10
    for words in ({}, {"phase": "decode", "context": 9}):
        assert of(**words) == Memory(held, 0, 0, 0, held + 12, held + 12)


# stored and computed bytes of a weight, its gradient and its state, and the same for what is kept in float32
TRAINING = [
    ({}, (2, 2, 12)),
    ({"optimizer": "adamw_bf16"}, (2, 2, 4)),
    ({"optimizer": "none"}, (2, 2, 0)),
    ({"weight_dtype": "float32"}, (4, 4, 8)),
    ({"weight_dtype": "float32", "optimizer": "adamw_bf16"}, (4, 4, 8)),
    ({"weight_dtype": "float8_e4m3fn"}, (1, 2, 12)),
    ({"weight_dtype": "float64"}, (8, 8, 16)),
]


@pytest.mark.parametrize(("words", "each"), TRAINING)
def test_training_holds_gradients_and_state_for_each_weight(words, each):
    state = 0 if words.get("optimizer") == "none" else 8
    weights, gradients, optimizer = (1000 * n + 10 * m for n, m in zip(each, (4, 4, state), strict=True))
    peak = weights + gradients + optimizer + 123
    assert of(phase="train", **words) == Memory(weights, gradients, optimizer, 100, peak, weights + 12)


def small(fields=(), dtype="float32"):
    plan = load({"dim": 32, "heads": 4, "layers": 2, "vocab": 64, **dict(fields)}).plan()
    return build_model(plan, device="cpu", dtype=dtype)


def state_bytes(optimizer):
    """Without the counters of steps, one for each parameter."""
    states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    return sum(value.numel() * value.itemsize for value in states)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("dtype", "name"), [("float32", "adamw"), ("bfloat16", "adamw_bf16")])
def test_torch_itself_holds_so_much_for_the_weights(dtype, name, frozen):
    model = small({"residual": "mhc"}, dtype)  # some of its parameters stay float32
    model.head.requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    optimizer.step()
    expected = memory(Workload("train", dtype=dtype, optimizer=name).settled(), parameters_of(model), Need(0))
    assert expected.optimizer == state_bytes(optimizer)
    assert expected.gradients == sum(p.grad.numel() * p.grad.itemsize for p in model.parameters() if p.requires_grad)
    assert expected.weights == sum(p.numel() * p.itemsize for p in model.parameters())


def test_a_master_copy_and_its_optimizer_hold_twelve_bytes():
    model = small(dtype="bfloat16")
    master = [parameter.detach().float() for parameter in model.parameters()]
    for copy in master:
        copy.grad = torch.zeros_like(copy)
    optimizer = torch.optim.AdamW(master)
    optimizer.step()
    expected = memory(Workload("train").settled(), parameters_of(model), Need(0)).optimizer
    assert expected == state_bytes(optimizer) + sum(copy.numel() * 4 for copy in master)


def policy(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if keeps_output(operator) else CheckpointPolicy.PREFER_RECOMPUTE


SELECTIVE = {"context_fn": partial(create_selective_checkpoint_contexts, policy)}


class Again(nn.Module):
    """A layer under torch's own checkpoint."""

    def __init__(self, layer, how):
        super().__init__()
        self.layer = layer
        self.how = how

    def forward(self, state, run):
        return checkpoint(self.layer, state, run, use_reentrant=False, preserve_rng_state=False, **self.how)


def kept(model, given):
    """Bytes of the storages that a forward made and that live on, its result apart."""
    with Storages() as storages:
        out = model(**given)
        return storages.alive(apart={storages.number(out)})[-1]


def compare_with_checkpoint(plan, given):
    model = build_model(plan, device="cpu")
    fake = fake_model(plan)
    with fake_cpu():
        texts = {name: torch.empty(ids.shape, dtype=ids.dtype) for name, ids in given.items()}
        expected = [Trained(mode).run(fake, **texts).sum.nbytes - held(texts) for mode in ("none", "selective", "full")]
    found = [kept(model, given)]
    stacks = [stack for stack in (model.encoder, model.stack) if stack is not None]
    layers = [list(stack.layers) for stack in stacks]
    for how in (SELECTIVE, {}):
        for stack, plain in zip(stacks, layers, strict=True):
            stack.layers = nn.ModuleList(Again(layer, how) for layer in plain)
        found.append(kept(model, given))
    assert expected == found


PARTS = [component for component in COMPONENTS if component.kind in ("attention", "feedforward", "residual")]


@pytest.mark.parametrize("component", PARTS, ids=str)
def test_recomputation_keeps_what_torch_checkpoint_keeps(component):
    compare_with_checkpoint(component.plan({}), {"ids": torch.randint(32, (2, 7))})


@pytest.mark.parametrize(
    "fields",
    [
        {"norm": "layernorm", "activation": "gelu", "dropout": {"sublayer": 0.1}},
        {"placement": "post", "feedforward": "none"},
        {"layout": {"parallel": {"shared_norm": True}}, "residual": "none"},
        {"residual": "attnres", "placement": "sandwich", "layers": 3},
        {"encoder": {"layers": 2}},
    ],
    ids=str,
)
def test_recomputation_of_whole_models(fields):
    plan = load({"dim": 32, "heads": 4, "layers": 2, "vocab": 64, **fields}).plan()
    texts = ("ids", "source") if plan.encoder is not None else ("ids",)
    compare_with_checkpoint(plan, {name: torch.randint(64, (2, 7)) for name in texts})


def test_full_recomputation_keeps_one_state_a_layer():
    """2 sbh bytes each in 16 bits, Korthikanti et al. 2022 (arXiv:2205.05198), section 5."""
    plan = load({"dim": 64, "heads": 4, "layers": 5, "final_norm": "none"}).plan()
    with fake_cpu():
        x = torch.empty(2, 40, 64, dtype=torch.bfloat16, requires_grad=True)
        trained = Trained("full").run(fake_model(plan, "bfloat16"), x)
    assert trained.sum.nbytes == 5 * 2 * 2 * 40 * 64


def test_what_is_recomputed_is_what_one_layer_keeps_otherwise():
    plan = load({"dim": 64, "heads": 4, "layers": 1, "final_norm": "none"}).plan()
    with fake_cpu():
        x, model = torch.empty(2, 40, 64, requires_grad=True), fake_model(plan)
        none, selective, full = (Trained(mode).run(model, x).sum for mode in ("none", "selective", "full"))
    assert none.recomputed == 0
    assert full.nbytes + full.recomputed == none.nbytes
    # What products gave is kept even where backward has no use for it: queries and keys before their rotation.
    assert selective.recomputed < full.recomputed
    assert selective.nbytes + selective.recomputed > none.nbytes


TRACKED = [
    ({}, "bfloat16"),
    ({"norm": "layernorm", "activation": "gelu"}, "float32"),
    ({"attention": {"gqa": {"kv_heads": 2}}, "tie_embeddings": True}, "float32"),
    ({"residual": "mhc", "layers": 1}, "bfloat16"),
]


@pytest.mark.parametrize(("fields", "dtype"), TRACKED, ids=str)
def test_the_peak_of_a_train_step_against_torchs_tracker(fields, dtype):
    """Two steps on fake tensors. The bound takes all gradients for there, as they are where the first step's stay."""
    plan = load({"dim": 256, "heads": 4, "layers": 2, "vocab": 1000, "head": "none", **fields}).plan()
    workload = Workload("train", dtype=dtype, optimizer="adamw" if dtype == "float32" else "adamw_bf16").settled()
    with fake_cpu():
        model = fake_model(plan, dtype)
        ids = torch.empty(2, 128, dtype=torch.int64)
        trained = Trained(watch=True).run(model, ids)
        need = Need(0, activations=trained.sum.nbytes, backward=trained.backward)
        expected = memory(workload, parameters_of(model), need).peak
        freed, stay = (_tracked(fake_model(plan, dtype), ids, to_none=to_none) for to_none in (True, False))
    assert freed < expected
    # Less than what is tracked by the new gradient that stands beside the old one until it has been added.
    assert 0.95 * stay < expected < 1.15 * stay


def _tracked(model, ids, *, to_none):
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, ids)
    with tracker:
        for step in range(2):
            if step:
                tracker.reset_mod_stats()
                optimizer.step()
                optimizer.zero_grad(set_to_none=to_none)
            out = model(ids)
            out.backward(torch.empty_like(out))
            del out
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return snapshot["Total"]


@pytest.mark.parametrize(("fields", "dtype"), TRACKED, ids=str)
def test_the_peak_of_inference_against_torchs_tracker(fields, dtype):
    plan = load({"dim": 256, "heads": 4, "layers": 2, "vocab": 1000, **fields}).plan()
    with fake_cpu():
        model = fake_model(plan, dtype)
        ids = torch.empty(2, 128, dtype=torch.int64)
        expected = memory(Workload(dtype=dtype).settled(), parameters_of(model), Need(forward_need(model, ids)))
        tracker = MemTracker()
        tracker.track_external(model, ids)
        with tracker, torch.no_grad():
            model(ids)
    (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    buffers = sum({id(b): b.numel() * b.itemsize for b in model.buffers()}.values())
    assert expected.peak == expected.inference_peak == snapshot["Total"] - buffers
