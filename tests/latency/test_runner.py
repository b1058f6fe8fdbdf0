"""What is timed: the right shapes, the same step every time, nothing left behind."""

import pytest
import torch
from torch import nn

from explorer.assembly.cache import Cache
from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError, UsageError
from explorer.latency.runner import Bare, Feed, ready


class Spy(nn.Module):
    """Adds up what its cache holds (all of it, or a window) and its source; writes down every call."""

    def __init__(self, device, dtype, *, vocab=None, window=None):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16, device=device, dtype=dtype))
        self.table = nn.Embedding(vocab, 16, device=device, dtype=dtype) if vocab else nn.Identity()
        self.dropout = nn.Dropout(0.5)
        self.window = window
        self.log = []

    def make_cache(self, batch, capacity, dtype, device):
        self.cache = Cache(1, batch=batch, capacity=capacity, dtype=dtype, device=device)
        return self.cache

    def forward(self, x, source=None, mask=None, cache=None):
        x = self.table(x) * self.scale
        offset, seen = 0, x
        if cache is not None:
            offset = cache.offset
            (seen,) = cache.views[0].extend(k=x, window=self.window)
            cache.advance(x.shape[1])
            if source is not None or cache.holds_source:
                cache.views[0].once(lambda: (self.table(source) * self.scale,))
        self.log.append((tuple(x.shape), offset, seen.shape[1], None if source is None else tuple(source.shape)))
        return self.dropout(x + seen.sum(1, keepdim=True))


class Maker:
    """Builds a Spy and keeps it, so that a test can read its log."""

    def __init__(self, **options):
        self.options = options

    def __call__(self, device, dtype):
        self.module = Spy(device, dtype, **self.options)
        return self.module


STATES = Feed(dim=16)


def step_and_module(workload, feed=STATES, **options):
    make = Maker(**options)
    return ready(make, workload.settled(encoder=feed.source), feed, device="cpu"), make.module


def call_and_module(workload, feed=STATES, **options):
    step, module = step_and_module(workload, feed, **options)
    return step.through(module), module


DECODE = Workload("decode", batch=2, context=6, dtype="float32")


def test_prefill_is_one_pass_without_cache_or_gradients():
    call, module = call_and_module(Workload("prefill", batch=2, tokens=5, dtype="bfloat16"))
    y = call()
    assert module.log == [((2, 5, 16), 0, 5, None)]
    assert (y.dtype, y.requires_grad, module.training) == (torch.bfloat16, False, False)
    torch.testing.assert_close(call(), y)


def test_every_decode_step_starts_from_the_same_place():
    call, module = call_and_module(DECODE)
    assert module.log == [((2, 5, 16), 0, 5, None)]  # the five tokens before
    first = call()
    for _ in range(20):
        torch.testing.assert_close(call(), first)
    assert set(module.log[1:]) == {((2, 1, 16), 5, 6, None)}


@pytest.mark.parametrize("window", [1, 2, 3, 5, 6, 9])
def test_a_window_sees_the_same_number_of_keys_every_time(window):
    call, module = call_and_module(DECODE, window=window)
    for _ in range(20):
        call()
    assert set(module.log[1:]) == {((2, 1, 16), 5, min(window, 6), None)}


def test_a_first_token_has_nothing_before_it():
    call, module = call_and_module(Workload("decode", batch=2, context=1, dtype="float32"))
    for _ in range(3):
        call()
    assert set(module.log[1:]) == {((2, 1, 16), 0, 1, None)}


def test_a_prompt_may_continue_a_cache():
    call, module = call_and_module(Workload("prefill", batch=2, tokens=4, context=10, dtype="float32"))
    for _ in range(3):
        call()
    assert set(module.log[1:]) == {((2, 4, 16), 6, 10, None)}


def test_a_long_cache_is_filled_in_steps_of_bounded_size():
    call, module = call_and_module(Workload("decode", batch=4096, context=6, dtype="float32"))
    call()
    assert module.log == [
        ((4096, 2, 16), 0, 2, None),
        ((4096, 2, 16), 2, 4, None),
        ((4096, 1, 16), 4, 5, None),
        ((4096, 1, 16), 5, 6, None),
    ]


@pytest.mark.parametrize("context", [1, 6])
def test_a_decode_step_runs_without_the_source(context):
    workload = Workload("decode", batch=2, context=context, source=7, dtype="float32")
    call, module = call_and_module(workload, Feed(dim=16, source=True))
    call()
    assert module.log[0][3] == (2, 7, 16)
    assert module.log[-1] == ((2, 1, 16), context - 1, context, None)


def test_prefill_reads_the_source():
    workload = Workload("prefill", batch=2, tokens=5, source=7, dtype="float32")
    call, module = call_and_module(workload, Feed(dim=16, source=True))
    call()
    assert module.log == [((2, 5, 16), 0, 5, (2, 7, 16))]


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_a_model_reads_ids(phase):
    workload = Workload(phase, batch=2, tokens=1, context=None if phase == "train" else 5, dtype="float32")
    call, module = call_and_module(workload, Feed(dim=16, vocab=11, source=True), vocab=11)
    call()
    assert module.log[-1][0] == (2, 1, 16)


def test_the_cache_holds_the_kv_dtype():
    _, module = call_and_module(Workload("decode", batch=2, context=6, dtype="float32", kv_dtype="bfloat16"))
    assert module.cache.nbytes() == 2 * 5 * 16 * 2


def test_train_makes_the_same_gradients_every_time():
    step, module = step_and_module(Workload("train", batch=2, tokens=5, dtype="float32"))
    call = step.through(module)
    module.dropout.p = 0.0
    assert module.training
    grads = []
    for _ in range(3):
        call()
        grads.append((module.scale.grad.clone(), step.x.grad.clone()))
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[0], grads[2])


def test_train_gradients_are_those_of_one_output_gradient():
    step, module = step_and_module(Workload("train", batch=2, tokens=5, dtype="float64"))
    module.dropout.p = 0.0
    y = step.through(module)()
    grads = (step.x.grad, module.scale.grad)
    expected = torch.autograd.grad(module(step.x, None), [step.x, module.scale], step.gradient.of(y))
    torch.testing.assert_close(grads, expected)


def test_train_works_where_gradients_are_off():
    with torch.no_grad():
        call, module = call_and_module(Workload("train", batch=2, tokens=5, dtype="float32"))
        call()
    assert module.scale.grad is not None


def test_inputs_come_from_the_seed_and_leave_the_global_state_alone():
    state = torch.get_rng_state()
    workload = Workload("train", batch=2, tokens=5, dtype="float32").settled()
    same, again = (ready(Maker(), workload, Feed(16), device="cpu", seed=3) for _ in range(2))
    other = ready(Maker(), workload, Feed(16), device="cpu", seed=4)
    torch.testing.assert_close(same.x, again.x)
    assert not torch.equal(same.x, other.x)
    torch.testing.assert_close(torch.get_rng_state(), state)


COPIED = {
    "prefill": Workload("prefill", batch=2, tokens=5, dtype="float32"),
    "prompt": Workload("prefill", batch=2, tokens=4, context=10, dtype="float32"),
    "decode": DECODE,
    "first token": Workload("decode", batch=2, context=1, dtype="float32"),
    "train": Workload("train", batch=2, tokens=5, dtype="float32"),
}


@pytest.mark.parametrize("workload", COPIED.values(), ids=COPIED)
def test_a_copy_computes_the_same_on_weights_of_its_own(workload):
    step, module = step_and_module(workload)
    module.dropout.p = 0.0
    expected = step.through(module)().detach().clone()
    twin = step.copied()
    assert twin.phase == step.phase == workload.phase
    assert twin.x is step.x
    assert twin.module.scale.data_ptr() != module.scale.data_ptr()
    call = twin.through(twin.module)
    for _ in range(3):
        torch.testing.assert_close(call(), expected)
    with torch.no_grad():
        module.scale.zero_()
    torch.testing.assert_close(call(), expected)


def test_a_copy_of_a_cache_is_at_the_same_place():
    step, _ = step_and_module(DECODE)
    twin = step.copied()
    twin.module.log.clear()
    twin.through(twin.module)()
    assert twin.module.log == [((2, 1, 16), 5, 6, None)]


@pytest.mark.parametrize(("workload", "cached"), [(COPIED["prefill"], 0), (DECODE, 2 * 5 * 16 * 4)])
def test_bytes_are_those_of_weights_and_cache(workload, cached):
    assert step_and_module(workload)[0].nbytes == 16 * 4 + cached


def test_a_step_runs_through_what_is_given():
    step, module = step_and_module(DECODE)
    seen = []

    def forward(x, source, *, cache):
        seen.append((x.shape, source, cache.offset))
        return module(x, source, cache=cache)

    torch.testing.assert_close(step.through(forward)(), step.through(module)())
    assert seen == [((2, 1, 16), None, 5)]


def test_a_bare_function_has_no_weights():
    step = Bare(lambda: 3)
    assert (step.through(None)(), step.copied(), step.nbytes, step.module) == (3, step, 0, None)


def test_layers_run_again_are_counted_and_not_measured():
    with pytest.raises(UsageError, match="recompute full is counted only, not measured"):
        call_and_module(Workload("train", tokens=5, dtype="float32", recompute="full"))


def test_mixed_weights_are_counted_and_not_measured():
    workload = Workload("prefill", tokens=5, dtype="bfloat16", weight_dtype="float8_e4m3fn")
    with pytest.raises(MeasureError, match="not measured: weights in float8_e4m3fn beside activations in bfloat16"):
        call_and_module(workload)
