"""The most bytes alive at once while a call runs, against hand counts, torch's profiler and the walk over parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

from explorer.assembly.build import build_model
from explorer.blueprint.load import load
from explorer.cost.memory.fake import fake_cpu, fake_model
from explorer.cost.memory.live import working_set
from explorer.cost.memory.saved import saved_by
from explorer.cost.parts.storages import Storages
from explorer.registry.loading import load_registry
from tests.cost.components import COMPONENTS
from tests.cost.in_a_row import Trained, forward_need, held

N = 4 * 1024  # bytes of a vector
WEIGHT = nn.Parameter(torch.ones(32, 32))


def vector():
    return torch.ones(1024, requires_grad=True)


def rows():
    return torch.ones(32, 32, requires_grad=True)


def put_in(given):
    given["more"] = given["x"].exp()
    return given["x"] + 1, given


# A call, its inputs, bytes forward, bytes of forward and backward on top of what is saved.
BY_HAND = {
    "the result, or its gradient, which becomes that of the input": (lambda x: x + 1, vector(), N, N),
    "two of a chain": (lambda x: x + 1 + 1 + 1, vector(), 2 * N, 2 * N),
    "in place": (lambda x: (x + 1).add_(1).add_(1), vector(), N, N),
    "views take nothing, their gradients do": (lambda x: x.view(32, 32).t(), vector(), 0, N),
    "two results, whose gradients are added": (lambda x: [x + 1, x + 2], vector(), 2 * N, 3 * N),
    "a saved result is not on top, two gradients are": (lambda x: x.exp(), vector(), N, 2 * N),
    "two gradients, but not that of a weight": (lambda x: x @ WEIGHT, rows(), N, 2 * N),
    "nothing comes back": (lambda x: (x.exp().exp(), None)[1], vector(), 2 * N, 2 * N),
    "put into a mapping": (put_in, {"x": vector()}, 2 * N, 3 * N),
    "scores, and what softmax makes of them": (lambda x: F.softmax(x @ WEIGHT, 0), rows(), 2 * N, 2 * N),
}


@pytest.mark.parametrize(("call", "inputs", "forward", "both"), BY_HAND.values(), ids=BY_HAND)
def test_by_hand(call, inputs, forward, both):
    assert working_set(call, inputs) == forward
    assert working_set(call, inputs, grad=True) == both


def test_gradients_are_as_they_were():
    weight, x = nn.Parameter(torch.ones(4)), torch.ones(4, requires_grad=True)
    weight.grad = held_before = torch.full((4,), 3.0)
    working_set(lambda x: x * weight, x, grad=True)
    assert weight.grad is held_before
    torch.testing.assert_close(weight.grad, torch.full((4,), 3.0))
    assert x.grad is None


def test_what_stays_behind_is_apart():
    cache = {"state": torch.zeros(1024)}

    def replace(x):
        cache["state"] = cache["state"] + x
        return x + 1

    # The new state is part of the cache; the old one goes when it has come.
    assert working_set(replace, torch.ones(1024)) == N
    kept = []
    assert working_set(lambda x: kept.append(x + 1), torch.ones(1024)) == 0


def test_a_storage_lives_as_long_as_its_views():
    with Storages() as storages:
        x = torch.ones(1024)
        view = x.view(32, 32)[0]
        del x
        before = storages.alive()
        assert storages.number(view) == 0
        del view
    assert before == [0, N]
    assert storages.alive() == [0, N, 0]


def allocated(call):
    """The most bytes that torch's profiler sees allocated at once on the CPU."""
    call()  # what is made once
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.parametrize("component", [c for c in COMPONENTS if c.kind != "activation"], ids=str)
def test_a_forward_takes_what_the_profiler_sees_allocated(component):
    plan = component.plan({})
    real, ids = build_model(plan, device="cpu"), torch.randint(32, (2, 24))
    fake = fake_model(plan)
    with fake_cpu():
        here = working_set(fake, torch.empty(2, 24, dtype=torch.int64))
    with torch.no_grad():
        there = allocated(lambda: real(ids))
    if str(component) == "attention-mla":  # of 160 keys' width: its kernel takes scratch memory while it runs
        assert here < there < 1.05 * here
    else:
        assert here == there


@pytest.mark.parametrize("fields", [{}, {"residual": "mhc"}, {"attention": "kda"}, {"feedforward": "dense"}], ids=str)
def test_forward_and_backward_take_what_the_profiler_sees_allocated(fields):
    plan = load({"dim": 32, "heads": 4, "layers": 2, "norm": "layernorm", **fields}).plan()
    real, x = build_model(plan, device="cpu"), torch.randn(2, 24, 32, requires_grad=True)
    seed = torch.ones(2, 24, 32)

    def train():
        real(x).backward(seed)
        for tensor in (*real.parameters(), x):
            tensor.grad = None

    gradients = sum(p.numel() * p.itemsize for p in real.parameters())
    private = saved_by(real, x).private.saved
    bound = working_set(real, x, grad=True) + private + gradients
    assert bound - gradients <= allocated(train) <= bound


FIXTURES = Path(__file__).parents[1] / "fixtures"
REGISTRY = load_registry((str(FIXTURES / "odd_components.py"),))
BASE = {"dim": 16, "heads": 4, "layers": 2, "vocab": 32}
STACKS = [
    {"encoder": {"layers": 1}},
    {"layout": {"parallel": {"shared_norm": True}}, "placement": "sandwich"},
    {"layout": {"parallel": {"shared_norm": False}}},
    {"blocks": {"local": {"window": 3}, "wide": {"feedforward": "none"}}, "layers": ["local", {"wide": 2}]},
    {"dropout": {"embedding": 0.1, "attention": 0.1, "activation": 0.1, "sublayer": 0.1}},
    {"feedforward": "later_reads", "layers": 3},
    {"residual": "attnres", "layers": 3},
    {"residual": "hyper_connections", "placement": "sandwich"},
    {"embedding": {"scale": 2.0, "norm": "layernorm", "types": 2}, "tie_embeddings": True, "head": "none"},
]


def both(fields, tokens=40):
    """A fake model and what it is called with."""
    plan = load({**BASE, **fields}, registry=REGISTRY).plan()
    texts = {"ids": tokens, **({"source": tokens + 3} if plan.encoder is not None else {})}
    return fake_model(plan), {name: torch.empty(2, length, dtype=torch.int64) for name, length in texts.items()}


def compare_forward(model, given):
    alone = forward_need(model, **given)
    assert alone == held(given) + working_set(lambda given: model(**given), given)


@pytest.mark.parametrize("fields", STACKS, ids=str)
def test_parts_need_what_the_whole_needs(fields):
    with fake_cpu():
        compare_forward(*both(fields))


PARTS = [component for component in COMPONENTS if component.kind in ("attention", "feedforward", "residual")]


@pytest.mark.parametrize("component", PARTS, ids=str)
def test_parts_of_every_component_need_what_the_whole_needs(component):
    with fake_cpu():
        compare_forward(fake_model(component.plan({})), {"ids": torch.empty(2, 40, dtype=torch.int64)})


@pytest.mark.parametrize("attention", ["mha", "kda", "gated_deltanet", "hca"])
def test_a_step_over_a_cache(attention):
    with fake_cpu():
        model, given = both({"attention": attention, "window": 8 if attention == "mha" else None})
        caches = [model.make_cache(2, 60) for _ in range(2)]
        for cache in caches:
            model.eval()(**given, cache=cache)
        step = {"ids": torch.empty(2, 1, dtype=torch.int64)}
        whole = working_set(lambda step: model(**step, cache=caches[0]), step)
        assert forward_need(model, **step, cache=caches[1]) == held(step) + whole


def test_filling_a_cache_needs_no_more_than_the_whole_cache_beside_it():
    with fake_cpu():
        model, given = both({})
        whole, apart = model.make_cache(2, 60), model.make_cache(2, 60)
        alone = working_set(lambda given: model(**given, cache=whole), given)
        assert alone <= forward_need(model, **given, cache=apart)


@pytest.mark.parametrize("fields", [{"norm": "layernorm"}, *STACKS], ids=str)
def test_backward_of_parts_is_an_upper_bound(fields):
    """All activations, and the part that needs most: what the whole takes at once, at most, and not much more."""
    with fake_cpu():
        model, given = both(fields)
        trained = Trained(watch=True).run(model, **given)
        whole = saved_by(lambda given: model(**given), given)
        saved = whole.private.saved + sum(crossing.nbytes for crossing in whole.crossings if crossing.saved)
        assert trained.sum.nbytes == saved
        alone = working_set(lambda given: model(**given), given, grad=True)
        assert alone <= trained.backward
        assert saved + trained.backward < 1.25 * (saved + alone)


@pytest.mark.parametrize("component", PARTS, ids=str)
def test_backward_of_every_component_is_bounded(component):
    with fake_cpu():
        model = fake_model(component.plan({"layers": 1}))
        ids = torch.empty(2, 40, dtype=torch.int64)
        assert working_set(model, ids, grad=True) <= Trained(watch=True).run(model, ids).backward
