"""Measuring on a real CUDA device: events, memory, errors. Nothing here asserts a time beyond what physics allows."""

import pytest
import torch
from torch import nn

from explorer.blueprint.workload import Workload
from explorer.latency.device import device_name, environment, resolve_device
from explorer.latency.measure import Candidate, measure
from explorer.latency.memory import free_bytes
from explorer.latency.runner import Feed, runnable
from explorer.latency.timing import Failure, Timing

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch.cuda.is_available() is False"),
]

WIDTH = 4096


def product(rows):
    """rows x WIDTH x WIDTH in bfloat16."""

    def build():
        a = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
        return lambda: a @ b

    return build


def greedy():
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda")]

    def call():
        held.append(torch.empty(2**46, dtype=torch.uint8, device="cuda"))

    return call


def test_events_wait_for_the_device():
    """Public case C1: a product cannot be faster than 5 PFLOP/s, which a clock that does not wait would show."""
    timing = measure([Candidate("product", product(8192))], device="cuda", effort="quick")["product"]
    assert isinstance(timing, Timing)
    assert (timing.regime, timing.device) == ("device", torch.cuda.get_device_name())
    flops = 2 * 8192 * WIDTH * WIDTH
    assert flops / (timing.median_ms / 1e3) < 5e15


def test_more_work_takes_longer():
    candidates = [Candidate("small", product(1024)), Candidate("large", product(32768))]
    result = measure(candidates, device="cuda", effort="quick")
    assert result["large"].median_ms > 4 * result["small"].median_ms


def test_out_of_memory_is_that_candidates_reason():
    before = free_bytes("cuda")
    candidates = [Candidate("a", product(1024)), Candidate("greedy", greedy), Candidate("b", product(2048))]
    result = measure(candidates, device="cuda", effort="quick")
    assert isinstance(result["greedy"], Failure)
    assert result["greedy"].out_of_memory
    assert isinstance(result["a"], Timing)
    assert isinstance(result["b"], Timing)
    assert before - free_bytes("cuda") < 2**30  # its first GiB was let go


def test_the_random_state_of_the_device_stays():
    state = torch.cuda.get_rng_state()
    measure([Candidate("draw", lambda: lambda: torch.rand(8, device="cuda"))], device="cuda", effort="quick")
    torch.testing.assert_close(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_a_module_runs_on_the_device(phase):
    workload = Workload(phase, batch=2, tokens=128, dtype="bfloat16").settled()

    class Block(nn.Linear):
        def forward(self, x, source=None):
            return super().forward(x)

    def make(device, dtype):
        return Block(256, 256, device=device, dtype=dtype)

    candidate = Candidate(phase, lambda: runnable(make, workload, Feed(256), device="cuda"))
    assert isinstance(measure([candidate], device="cuda", effort="quick")[phase], Timing)


def test_the_device_is_named():
    assert resolve_device(None) == "cuda"
    assert device_name("cuda") == torch.cuda.get_device_name()
    stored = environment("cuda")
    assert stored["cuda"] == torch.version.cuda
