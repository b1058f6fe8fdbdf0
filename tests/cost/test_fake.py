"""Fake CPU tensors: every component runs on them as on real ones, at any size, and nothing else changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor

from explorer.assembly.build import build_block, build_model
from explorer.assembly.construction import dtype_of
from explorer.blueprint.load import load
from explorer.cost.memory.fake import fake_block, fake_cpu, fake_model, on_fake_cpu
from explorer.cost.memory.saved import saved_by
from tests.cost.components import COMPONENTS

PUBLISHED = Path(__file__).parents[2] / "blueprints" / "published"


def like(tensor):
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device.type, tensor.requires_grad


NARROW = [component for component in COMPONENTS if component.kind not in ("activation", "position")]
CASES = [(c, "float32") for c in COMPONENTS] + [(c, dtype) for c in NARROW for dtype in ("bfloat16", "float16")]


@pytest.mark.parametrize(("component", "dtype"), CASES, ids=str)
def test_every_component_runs_as_on_real_tensors(component, dtype):
    plan = component.plan({"layers": 1})
    with fake_cpu():
        fake = fake_model(plan, dtype)
        ids = torch.empty(2, 7, dtype=torch.int64)
        out = fake(ids)
        out.backward(torch.empty_like(out))
        cached = fake.eval()(ids[:, :3], cache=fake.make_cache(2, 7))
    real = build_model(plan, device="cpu", dtype=dtype)
    expected = real(torch.randint(32, (2, 7)))
    assert like(out) == like(expected)
    assert cached.shape == (2, 3, 32)
    for (name, twin), (other, parameter) in zip(fake.named_parameters(), real.named_parameters(), strict=True):
        assert (name, *like(twin)) == (other, *like(parameter))
        assert isinstance(twin, FakeTensor)
        assert twin.grad is None or like(twin.grad)[:3] == like(twin)[:3]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gemma-2-9b", "kimi-k3-text", "gpt-oss-20b", "t5-base"])
def test_published_blocks_at_full_size(name, dtype):
    """Hundreds of gigabytes, were they real."""
    plan = load(PUBLISHED / f"{name}.yaml").plan()
    for stack in plan.stacks:
        for block in stack.counts:
            with fake_cpu():
                module = fake_block(plan, stack.label(block), dtype)
                x = torch.empty(4, 512, plan.dim, dtype=dtype_of(dtype), requires_grad=True)
                context = x if module.stack.intake.cross else None
                ids = torch.empty(4, 512, dtype=torch.int64)
                y = module(x, context, ids=ids)
                y.backward(torch.empty_like(y))
            assert (y.shape, y.dtype, x.grad.shape) == (x.shape, x.dtype, x.shape)


def test_nothing_else_changes():
    plan = load({"dim": 16, "heads": 4, "norm": "layernorm", "dropout": {"sublayer": 0.5}}).plan()
    before = torch.get_rng_state(), random.getstate(), torch.get_default_dtype(), torch.is_grad_enabled()
    with fake_cpu():
        module = fake_block(plan, dtype="bfloat16")
        saved_by(module, torch.empty(2, 5, 16, dtype=torch.bfloat16, requires_grad=True))
    torch.testing.assert_close(torch.get_rng_state(), before[0])
    assert (random.getstate(), torch.get_default_dtype(), torch.is_grad_enabled()) == before[1:]
    assert not isinstance(torch.ones(1), FakeTensor)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_no_value_can_be_read():
    with fake_cpu(), pytest.raises(DataDependentOutputException):
        torch.ones(1).item()


TWINS = [{}, {"attention": "mla"}, {"attention": "kda", "position": "none"}, {"norm": "batchnorm"}]


@pytest.mark.parametrize("fields", [*TWINS, {"position": "t5_bias"}], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_module_on_meta_computes_on_fake_tensors(fields, dtype):
    plan = load({"dim": 64, "heads": 4, **fields}).plan()
    meta, fake = build_block(plan, device="meta", dtype=dtype), fake_block(plan, dtype=dtype)
    before = {**dict(meta.named_parameters()), **dict(meta.named_buffers())}
    with on_fake_cpu([meta, meta.block]):
        x = torch.empty(2, 5, 64, dtype=dtype_of(dtype), requires_grad=True)
        twin = saved_by(meta, x)
        assert twin == saved_by(fake, x)
        assert twin.out.device.type == "cpu"
    after = {**dict(meta.named_parameters()), **dict(meta.named_buffers())}
    assert before.keys() == after.keys()
    assert all(tensor is after[name] for name, tensor in before.items())


def test_a_module_on_meta_is_whole_again_after_an_error():
    module = build_block(load({"dim": 16, "heads": 4}).plan(), device="meta")
    with pytest.raises(ZeroDivisionError), on_fake_cpu([module]):
        raise ZeroDivisionError
    assert all(parameter.is_meta for parameter in module.parameters())


def test_a_weight_in_two_places_stays_one():
    plan = load({"dim": 16, "heads": 4, "vocab": 32, "tie_embeddings": True, "layers": 1}).plan()
    model = build_model(plan, device="meta")
    model.again = model.embedding.table
    with on_fake_cpu([model]):
        assert model.again.weight is model.embedding.table.weight
        assert isinstance(model.again.weight, torch.nn.Parameter)
