"""What is timed: the right shapes, the same step every time, nothing left behind."""

import pytest
import torch
from torch import nn

from explorer.assembly.cache import Cache
from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError
from explorer.latency.runner import Feed, runnable


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


def ready(workload, feed=STATES, **options):
    make = Maker(**options)
    return runnable(make, workload.settled(encoder=feed.source), feed, device="cpu"), make.module


DECODE = Workload("decode", batch=2, context=6, dtype="float32")


def test_prefill_is_one_pass_without_cache_or_gradients():
    call, module = ready(Workload("prefill", batch=2, tokens=5, dtype="bfloat16"))
    y = call()
    assert module.log == [((2, 5, 16), 0, 5, None)]
    assert (y.dtype, y.requires_grad, module.training) == (torch.bfloat16, False, False)
    torch.testing.assert_close(call(), y)


def test_every_decode_step_starts_from_the_same_place():
    call, module = ready(DECODE)
    assert module.log == [((2, 5, 16), 0, 5, None)]  # the five tokens before
    first = call()
    for _ in range(20):
        torch.testing.assert_close(call(), first)
    assert set(module.log[1:]) == {((2, 1, 16), 5, 6, None)}


@pytest.mark.parametrize("window", [1, 2, 3, 5, 6, 9])
def test_a_window_sees_the_same_number_of_keys_every_time(window):
    call, module = ready(DECODE, window=window)
    for _ in range(20):
        call()
    assert set(module.log[1:]) == {((2, 1, 16), 5, min(window, 6), None)}


def test_a_first_token_has_nothing_before_it():
    call, module = ready(Workload("decode", batch=2, context=1, dtype="float32"))
    for _ in range(3):
        call()
    assert set(module.log[1:]) == {((2, 1, 16), 0, 1, None)}


def test_a_prompt_may_continue_a_cache():
    call, module = ready(Workload("prefill", batch=2, tokens=4, context=10, dtype="float32"))
    for _ in range(3):
        call()
    assert set(module.log[1:]) == {((2, 4, 16), 6, 10, None)}


def test_a_long_cache_is_filled_in_steps_of_bounded_size():
    call, module = ready(Workload("decode", batch=4096, context=6, dtype="float32"))
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
    call, module = ready(workload, Feed(dim=16, source=True))
    call()
    assert module.log[0][3] == (2, 7, 16)
    assert module.log[-1] == ((2, 1, 16), context - 1, context, None)


def test_prefill_reads_the_source():
    call, module = ready(Workload("prefill", batch=2, tokens=5, source=7, dtype="float32"), Feed(dim=16, source=True))
    call()
    assert module.log == [((2, 5, 16), 0, 5, (2, 7, 16))]


@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_a_model_reads_ids(phase):
    workload = Workload(phase, batch=2, tokens=1, context=None if phase == "train" else 5, dtype="float32")
    call, module = ready(workload, Feed(dim=16, vocab=11, source=True), vocab=11)
    call()
    assert module.log[-1][0] == (2, 1, 16)


def test_the_cache_holds_the_kv_dtype():
    _, module = ready(Workload("decode", batch=2, context=6, dtype="float32", kv_dtype="bfloat16"))
    assert module.cache.nbytes() == 2 * 5 * 16 * 2


def test_train_makes_the_same_gradients_every_time():
    call, module = ready(Workload("train", batch=2, tokens=5, dtype="float32"))
    module.dropout.p = 0.0
    assert module.training
    grads = []
    for _ in range(3):
        call()
        grads.append((module.scale.grad.clone(), call.x.grad.clone()))
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[0], grads[2])


def test_train_gradients_are_those_of_the_output_gradient():
    call, module = ready(Workload("train", batch=2, tokens=5, dtype="float64"))
    module.dropout.p = 0.0
    call()
    y = module(call.x, None)
    expected = torch.autograd.grad(y, [call.x, module.scale], call.gradient)
    torch.testing.assert_close((call.x.grad, module.scale.grad), expected)


def test_train_works_where_gradients_are_off():
    with torch.no_grad():
        call, module = ready(Workload("train", batch=2, tokens=5, dtype="float32"))
        call()
    assert module.scale.grad is not None


def test_inputs_come_from_the_seed_and_leave_the_global_state_alone():
    state = torch.get_rng_state()
    workload = Workload("train", batch=2, tokens=5, dtype="float32").settled()
    same, again = (runnable(Maker(), workload, Feed(16), device="cpu", seed=3) for _ in range(2))
    other = runnable(Maker(), workload, Feed(16), device="cpu", seed=4)
    torch.testing.assert_close(same.x, again.x)
    assert not torch.equal(same.x, other.x)
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_mixed_weights_are_counted_and_not_measured():
    workload = Workload("prefill", tokens=5, dtype="bfloat16", weight_dtype="float8_e4m3fn")
    with pytest.raises(MeasureError, match="not measured: weights in float8_e4m3fn beside activations in bfloat16"):
        ready(workload)
