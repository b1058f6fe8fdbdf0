"""Memory counted on fake CPU tensors against what a CUDA device allocates."""

import pytest
import torch

from explorer.assembly.build import build_model
from explorer.blueprint.load import load
from explorer.blueprint.workload import Workload
from explorer.cost.memory.fake import fake_cpu, fake_model
from explorer.cost.memory.memory import Need, memory
from explorer.cost.stored import parameters_of
from tests.cost.in_a_row import Trained, forward_need, held

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch.cuda.is_available() is False"),
]

BATCH, TOKENS, DIM = 4, 1024, 1024
# Without dropout and fused RMSNorm, whose CUDA kernels keep less than the CPU's; activations of whole MiB, so that the
# allocator's rounding does not show.
BASE = {"dim": DIM, "heads": 16, "layers": 4, "norm": "layernorm", "position": "none"}
BLOCKS = [
    {"activation": "gelu"},
    {"activation": "swiglu", "feedforward": {"dense": {"hidden": 2048}}},
    {"placement": "sandwich", "activation": "relu"},
]


def models(fields):
    plan = load({**BASE, **fields}).plan()
    return build_model(plan, device="cuda", dtype="bfloat16"), fake_model(plan, "bfloat16")


def vectors(device, grad):
    return torch.zeros(BATCH, TOKENS, DIM, dtype=torch.bfloat16, device=device, requires_grad=grad)


def train(model, x):
    y = model(x)
    y.backward(torch.ones_like(y))


def peak_of(call):
    """The most bytes allocated during a call over those before; a first call makes what stays, such as workspaces."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("fields", BLOCKS, ids=str)
def test_activations_are_what_a_forward_leaves_allocated(fields):
    model, fake = models(fields)
    x = vectors("cuda", True)
    model(x)
    before = torch.cuda.memory_allocated()
    y = model(x)
    left = torch.cuda.memory_allocated() - before - y.untyped_storage().nbytes()
    with fake_cpu():
        inner = vectors("cpu", True)
        counted = Trained().run(fake, inner).sum.nbytes - held(inner)
    assert left == pytest.approx(counted, rel=0.03)


@pytest.mark.parametrize("fields", BLOCKS, ids=str)
def test_the_peak_of_a_train_step(fields):
    """With the gradients of the step before in place, as the bound takes them to be."""
    model, fake = models(fields)
    x = vectors("cuda", True)
    found = peak_of(lambda: train(model, x))
    with fake_cpu():
        inner = vectors("cpu", True)
        trained = Trained(watch=True).run(fake, inner)
    parameters = parameters_of(fake)
    need = Need(0, activations=trained.sum.nbytes - held(inner), backward=trained.backward)
    full = memory(Workload("train").settled(), parameters, need)
    counted = full.peak - full.weights - full.gradients - full.optimizer
    assert 0.85 * counted < found < 1.1 * counted


@pytest.mark.parametrize("fields", BLOCKS, ids=str)
def test_the_peak_of_inference(fields):
    model, fake = models(fields)
    x = vectors("cuda", False)
    with torch.no_grad():
        found = peak_of(lambda: model(x))
    with fake_cpu():
        inner = vectors("cpu", False)
        counted = forward_need(fake, inner) - held(inner)
    assert found == pytest.approx(counted, rel=0.05)
