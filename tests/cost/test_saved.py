"""What autograd keeps of a call, and that parts in a row keep what the whole keeps."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from explorer.assembly.build import build_block, build_model
from explorer.blueprint.load import load
from explorer.cost.memory.fake import fake_block, fake_cpu, fake_model
from explorer.cost.memory.saved import Crossing, Kept, Saved, saved_by
from explorer.errors import BlueprintError, RefusedError
from explorer.registry.loading import load_registry
from tests.cost.components import COMPONENTS
from tests.cost.in_a_row import Trained

DTYPES = ["float32", "bfloat16"]


class _Slot:
    """Lives as long as autograd holds it."""

    def __init__(self, tensor):
        self.storage = tensor.untyped_storage()


def _no_backward(slot):
    raise AssertionError(slot)


def kept_by_hooks(module, call):
    """Bytes of all distinct storages that autograd holds after a forward of real tensors, weights apart."""
    slots = weakref.WeakSet()

    def pack(tensor):
        slot = _Slot(tensor)
        slots.add(slot)
        return slot

    with torch.autograd.graph.saved_tensors_hooks(pack, _no_backward):
        out = call()
    weights = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers())}
    found = {slot.storage._cdata: slot.storage.nbytes() for slot in slots}
    assert out is not None
    return sum(nbytes for place, nbytes in found.items() if place not in weights)


def total(saved: Saved) -> int:
    return saved.private.saved + sum(crossing.nbytes for crossing in saved.crossings if crossing.saved)


def vector(n=8, grad=True):
    return torch.ones(n, requires_grad=grad)  # 4 n bytes


class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor


def checkpointed(x):
    return checkpoint(lambda x: x.exp().square(), x, use_reentrant=False, preserve_rng_state=False)


def products(given):
    a, b = given["p"]
    return {"y": a * b, "z": [b]}


# A call, its inputs, then private bytes kept, storages that come in and go out (bytes, kept), and where they do.
FACTS = {
    "a sum keeps nothing": (lambda x: x + 1, vector(), 0, [(32, False), (32, False)], [0], [1]),
    "exp keeps its result": (lambda x: x.exp(), vector(), 0, [(32, False), (32, True)], [0], [1]),
    "a square keeps its input": (lambda x: x.square(), vector(), 0, [(32, True), (32, False)], [0], [1]),
    "one between is private": (lambda x: x.exp().exp(), vector(), 32, [(32, False), (32, True)], [0], [1]),
    "what is handed through is one storage": (lambda x: x, vector(), 0, [(32, False)], [0], [0]),
    "views are one storage": (lambda x: (x[:2], x[2:]), vector(), 0, [(32, False)], [0], [0, 0]),
    "a view keeps all of it": (lambda x: x[:2].square(), vector(), 0, [(32, True), (8, False)], [0], [1]),
    "trees": (products, {"p": Pair(vector(4), vector(1))}, 0, [(16, True), (4, True), (16, False)], [0, 1], [2, 1]),
    "a mask is private": (lambda x: F.dropout(x, 0.5), vector(), 32, [(32, False), (32, False)], [0], [1]),
    "nothing flows back": (lambda x: x.square().detach(), vector(), 0, [(32, False), (32, False)], [0], [1]),
    "a dead end is let go": (lambda x: (x.exp().square(), x)[1], vector(), 0, [(32, False)], [0], [0]),
    "no gradients are wanted": (lambda x: x.square(), vector(grad=False), 0, [(32, False), (32, False)], [0], [1]),
    "a checkpoint keeps its input": (checkpointed, vector(), 0, [(32, True), (32, False)], [0], [1]),
}


@pytest.mark.parametrize(("call", "inputs", "private", "crossings", "came", "went"), FACTS.values(), ids=FACTS)
def test_what_one_call_keeps(call, inputs, private, crossings, came, went):
    saved = saved_by(call, inputs)
    assert saved.private.saved == private
    assert [(crossing.nbytes, crossing.saved) for crossing in saved.crossings] == crossings
    assert (saved.inputs, saved.outputs) == (tuple(came), tuple(went))


def test_weights_buffers_and_what_was_there_before_never_count():
    linear, before = nn.Linear(8, 4), torch.ones(4)
    saved = saved_by(lambda x: linear(x) * before, torch.ones(2, 8, requires_grad=True))
    assert saved.private.saved == 0  # the product by `before` needs its other factor for no gradient
    assert [crossing.saved for crossing in saved.crossings] == [True, False]
    handed_on = saved_by(lambda x: (x, before), vector())
    assert handed_on.outputs == (0, None)


def test_what_products_made_is_told_apart():
    weight = torch.ones(8, 8, requires_grad=True)
    saved = saved_by(lambda x: (x @ weight + 1).relu() @ weight, torch.ones(2, 8, requires_grad=True))
    assert saved.private == Kept(saved=64, products=64, both=0)
    assert saved.crossings == (Crossing(64, True), Crossing(64, False, product=True))
    gelu = saved_by(lambda x: F.gelu(x @ weight), torch.ones(2, 8, requires_grad=True))
    assert gelu.private == Kept(saved=64, products=64, both=64)


def test_the_result_is_the_next_input():
    first = saved_by(lambda x: {"y": x.exp(), "n": 3}, vector())
    assert first.out["y"].is_leaf
    assert first.out["y"].requires_grad
    assert first.out["n"] == 3
    assert total(saved_by(lambda t: t["y"].square(), first.out)) == 32


GELU = {"norm": "layernorm", "activation": "gelu", "feedforward": {"dense": {"hidden": 4096}}}
RELU = {**GELU, "activation": "relu"}
# Bytes kept of a block of 16 heads of 64 with 16-bit numbers, for each token and channel. Korthikanti et al. 2022
# (arXiv:2205.05198) count 34 for GELU with dropout, without the scores: 32, and a mask of one byte for each dropout. On
# a CPU the masks are in the dtype of x, hence 36. ReLU keeps its result only. Both LayerNorms keep a mean and a
# deviation in 16 bits for each token, attention a float32 number for each head.
SMALL_CHANGE = (2 * 2 * 2 + 16 * 4) / 1024
AROUND = 2 * (2 + 2 + 3 + 1)  # inputs of the norms and of the maps behind them, q, k and v, what attention gave
KORTHIKANTI = [
    (GELU, AROUND + 2 * 2 * 4),
    ({**GELU, "dropout": {"sublayer": 0.1}}, AROUND + 2 * 2 * 4 + 2 * 2),
    (RELU, AROUND + 2 * 4),
    ({**GELU, "activation": "swiglu", "feedforward": {"dense": {"hidden": 2816}}}, AROUND + 2 * 4 * 2.75),
]


@pytest.mark.parametrize(("fields", "expected"), KORTHIKANTI)
def test_bytes_for_each_token_and_channel(fields, expected):
    tokens, dim = 512, 1024
    plan = load({"dim": dim, "heads": 16, "position": "none", **fields}).plan()
    block = fake_block(plan, dtype="bfloat16")
    with fake_cpu():
        saved = saved_by(block, torch.empty(1, tokens, dim, dtype=torch.bfloat16, requires_grad=True))
    assert total(saved) / (tokens * dim) == expected + SMALL_CHANGE


def test_fused_attention_keeps_no_scores():
    """On meta the same call keeps some for each pair of tokens."""
    plan = load({"dim": 64, "heads": 4}).plan()
    kept = []
    for tokens in (512, 1024):
        block = fake_block(plan)
        with fake_cpu():
            kept.append(total(saved_by(block, torch.empty(1, tokens, 64, requires_grad=True))))
    meta = build_block(plan, device="meta")
    unfused = total(saved_by(meta, torch.empty(1, 1024, 64, device="meta", requires_grad=True)))
    assert kept[1] == pytest.approx(2 * kept[0])  # but for the rotary angles
    assert unfused > 3 * kept[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("component", COMPONENTS, ids=str)
def test_parts_in_a_row_keep_what_the_whole_keeps(component, dtype):
    """For every installed component, and every placement of a residual: real tensors, and fake ones part by part."""
    for placement in component.placements if dtype == "float32" else component.placements[:1]:
        plan = component.plan({"placement": placement})
        real = build_model(plan, device="cpu", dtype=dtype)
        ids = torch.randint(32, (2, 7))
        whole = kept_by_hooks(real, lambda: real(ids))  # noqa: B023  (called at once)
        assert total(saved_by(real, ids)) == whole, placement
        fake = fake_model(plan, dtype)
        with fake_cpu():
            parts = Trained().run(fake, torch.empty(2, 7, dtype=torch.int64)).sum.nbytes
        assert parts == whole + component.wrong(dtype), placement


FIXTURES = Path(__file__).parents[1] / "fixtures"
REGISTRY = load_registry((str(FIXTURES / "odd_components.py"), str(FIXTURES / "wide_residuals.py")))
STACKS = [
    {"encoder": {"layers": 1}},
    {"encoder": {"layers": 1, "attention": "differential"}, "decoder": {"layers": 2, "cross_attention": "mha_naive"}},
    {"attention": "no_cache", "position": "none"},
    {"feedforward": "later_reads", "layers": 3},
    {"layout": {"parallel": {"shared_norm": True}}},
    {"layout": {"parallel": {"shared_norm": False}}, "norm": "layernorm"},
    {"blocks": {"local": {"window": 3}, "wide": {"feedforward": "none"}}, "layers": ["local", {"wide": 2}]},
    {"residual": {"mhc": {"leave": "weighted"}}, "placement": "sandwich"},
    {"dropout": {"embedding": 0.1, "attention": 0.1, "activation": 0.1, "sublayer": 0.1}},
    {"embedding": {"scale": 2.0, "norm": "layernorm", "types": 2}, "tie_embeddings": True},
]


def compare(fields, dtype):
    plan = load({"dim": 16, "heads": 4, "layers": 2, "vocab": 32, **fields}, registry=REGISTRY).plan()
    real = build_model(plan, device="cpu", dtype=dtype)
    texts = {"ids": (2, 7), **({"source": (2, 5)} if plan.encoder is not None else {})}
    given = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in texts.items()}
    whole = kept_by_hooks(real, lambda: real(**given))
    fake = fake_model(plan, dtype)
    with fake_cpu():
        given = {name: torch.empty(shape, dtype=torch.int64) for name, shape in texts.items()}
        assert Trained().run(fake, **given).sum.nbytes == whole


@pytest.mark.parametrize("fields", STACKS, ids=str)
def test_whole_models_of_many_shapes(fields):
    compare(fields, "float32")


def _options(kind):
    return st.sampled_from([c for c in COMPONENTS if c.kind == kind and not c.wrong("bfloat16")])


@settings(max_examples=15)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_random_combinations(data, dtype):
    kinds = ("norm", "attention", "feedforward", "activation", "residual", "position")
    chosen = {kind: data.draw(_options(kind), label=kind) for kind in kinds}
    fields = {}
    for kind in kinds:
        fields |= chosen[kind].fields()
    fields["placement"] = data.draw(st.sampled_from(chosen["residual"].placements))
    try:
        compare(fields, dtype)
    except (BlueprintError, RefusedError):
        assume(False)  # not a model
