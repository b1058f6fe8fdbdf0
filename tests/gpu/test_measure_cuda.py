"""Measuring on a real CUDA device: events, graphs, memory, errors. No time is asserted beyond what physics allows."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from explorer.blueprint.workload import Workload
from explorer.errors import RefusedError
from explorer.latency.arms import Candidate
from explorer.latency.crew import measure_job
from explorer.latency.device import device_name, environment, resolve_device
from explorer.latency.job import job_for
from explorer.latency.last_cache import last_cache_bytes
from explorer.latency.measure import measure
from explorer.latency.memory import free_bytes
from explorer.latency.raw import Lane, Process
from explorer.latency.recipe import Recipe
from explorer.latency.runner import Bare, Feed, ready
from explorer.latency.timing import timing

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch.cuda.is_available() is False"),
]

WIDTH = 4096
REGIMES = ("throughput", "device", "latency")


def product(key, rows):
    """rows x WIDTH x WIDTH in bfloat16."""

    def build():
        a = torch.randn(rows, WIDTH, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16)
        return Bare(lambda: a @ b)

    return Candidate(key, build)


def greedy():
    held = [torch.empty(2**30, dtype=torch.uint8, device="cuda")]

    def call():
        held.append(torch.empty(2**46, dtype=torch.uint8, device="cuda"))

    return Bare(call)


def run(*candidates, **options):
    return measure(candidates, device="cuda", effort="quick", **options)


def median(process, key, regime="throughput", impl="eager"):
    return timing([process], Lane(key, impl, regime)).median_ms


@pytest.mark.parametrize("regime", REGIMES)
def test_clocks_wait_for_the_device(regime):
    """Public case C1: a product cannot be faster than 5 PFLOP/s, which a clock that does not wait would show."""
    flops = 2 * 8192 * WIDTH * WIDTH
    assert flops / (median(run(product("product", 8192)), "product", regime) / 1e3) < 5e15


def test_more_work_takes_longer_in_every_regime():
    process = run(product("small", 1024), product("large", 32768))
    assert process.failed == ()
    for regime in REGIMES:
        assert median(process, "large", regime) > 4 * median(process, "small", regime)


def test_launching_is_what_small_work_waits_for():
    """A hundred launches of next to nothing: a graph leaves the gaps out, a single call has them all and the wait."""

    def build():
        x = torch.zeros(8, device="cuda")

        def call():
            for _ in range(100):
                x.add_(1)

        return Bare(call)

    process = run(Candidate("tiny", build))
    assert median(process, "tiny", "device") < median(process, "tiny", "throughput")
    assert median(process, "tiny", "device") < median(process, "tiny", "latency")


def test_what_no_graph_can_hold_has_a_reason_and_the_other_regimes():
    def build():
        x = torch.ones(1024, device="cuda")
        return Bare(lambda: x.sum().item())

    process = run(Candidate("waits", build), product("product", 1024))
    (failed,) = process.failed
    assert (failed.candidate, failed.regime) == ("waits", "device")
    assert {track.lane.regime for track in process.tracks if track.lane.candidate == "waits"} == {
        "throughput",
        "latency",
    }
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.rand(8, device="cuda")
    torch.cuda.empty_cache()


def test_out_of_memory_is_that_candidates_reason():
    before = free_bytes("cuda")
    process = run(product("a", 1024), Candidate("greedy", greedy), product("b", 2048))
    assert {failed.candidate for failed in process.failed} == {"greedy"}
    assert all(failed.out_of_memory for failed in process.failed)
    assert {track.lane.candidate for track in process.tracks} == {"a", "b"}
    assert before - free_bytes("cuda") < 2**30  # its first GiB was let go


def test_the_random_state_of_the_device_stays():
    state = torch.cuda.get_rng_state()
    run(Candidate("draw", lambda: Bare(lambda: torch.rand(8, device="cuda"))))
    torch.testing.assert_close(torch.cuda.get_rng_state(), state)


class Block(nn.Linear):
    def forward(self, x, source=None):
        return super().forward(x)


def block(phase):
    workload = Workload(phase, batch=2, tokens=128, dtype="bfloat16").settled()

    def make(device, dtype):
        return Block(256, 256, device=device, dtype=dtype)

    return Candidate(phase, lambda: ready(make, workload, Feed(256), device="cuda"))


@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_a_module_runs_in_every_regime(phase):
    process = run(block(phase))
    assert process.failed == ()
    assert [track.lane.regime for track in process.tracks] == list(REGIMES)
    assert process.facts[phase]["eager"]["peak"]["bytes"] > 0


@pytest.mark.filterwarnings("ignore")  # compilers warn of their own parts, and that products might be less exact
@pytest.mark.parametrize("phase", ["prefill", "train"])
def test_a_compiled_module_agrees_in_every_regime(phase):
    """In training a graph holds a compiled forward and a compiled backward."""
    process = run(block(phase), impls=["eager", "compile"])
    assert process.failed == ()
    assert [(track.lane.impl, track.lane.regime) for track in process.tracks] == [
        (impl, regime) for impl in ("eager", "compile") for regime in REGIMES
    ]
    facts = process.facts[phase]["compile"]
    assert facts["parity"]["ok"], facts["parity"]["reason"]
    assert facts["compile_s"] > 0


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_the_device_is_watched_and_its_clocks_are_read():
    process = run(product("product", 1024))
    assert process.guard.endswith("; NVML")
    for when in ("before", "after"):
        clocks = process.environment["clocks"][when]
        assert clocks["sm_mhz"] > 0
        assert clocks["memory_mhz"] > 0


@pytest.mark.parametrize(("cache", "label"), [("warm", "warm"), ("rotate", "cold weights"), ("flush", "cold")])
def test_cache_modes(cache, label):
    """A cache of 256 KiB, of which the block's 128 KiB of weights take 8 copies."""
    process = run(block("prefill"), cache=cache, last_cache=2**18)
    assert {track.cache for track in process.tracks} == {label}
    assert {track.copies for track in process.tracks} == {8 if cache == "rotate" else 1}
    assert all(track.calls % track.copies == 0 for track in process.tracks)


def test_the_last_cache_is_known():
    assert last_cache_bytes("cuda") > 2**20


def test_a_worker_measures_blocks():
    """Its guard may take this process, which holds the device too, for a stranger; times there are all the same."""
    workload = vars(Workload("decode", batch=1, context=128, dtype="bfloat16").settled())
    recipes = [
        Recipe(norm, {"dim": 256, "heads": 4, "norm": norm}, "block", workload) for norm in ("layernorm", "rmsnorm")
    ]
    found = list(measure_job(job_for(recipes, baseline="layernorm", device="cuda", effort="quick")))
    (process,) = found
    assert isinstance(process, Process)
    assert len(process.tracks) == 3 * len(REGIMES)


def test_a_block_that_is_refused_says_why():
    def refuse():
        raise RefusedError("dim 96 must divide by heads 10")

    (failed,) = run(Candidate("refused", refuse)).failed
    assert failed.reason == "dim 96 must divide by heads 10"


def test_the_device_is_named():
    assert resolve_device(None) == "cuda"
    assert device_name("cuda") == torch.cuda.get_device_name()
    stored = environment("cuda")
    assert stored["cuda"] == torch.version.cuda
