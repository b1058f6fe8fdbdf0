"""Counting never changes a module: parameters, buffers, modes, gradients, hooks; nor random states and settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.modules.module as everywhere
from torch import Tensor, nn

import explorer
from explorer.assembly.build import build_model
from explorer.blueprint.workload import Workload
from explorer.cost.audit import audit
from explorer.cost.counting import Workbench, count
from explorer.cost.crosscheck.check import crosscheck
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.observation import META, Observations
from explorer.cost.parts.observing import step_of
from explorer.cost.parts.subject import Subject, Subjects
from explorer.cost.parts.walk import walk

BLUEPRINT: dict[str, Any] = {
    "dim": 16,
    "heads": 4,
    "layers": 2,
    "vocab": 32,
    "tie_embeddings": True,
    "norm": "batchnorm",
    "residual": {"mhc": {"streams": 2}},
    "dropout": {"attention": 0.1, "activation": 0.1, "sublayer": 0.1},
}
PHASES = {
    "prefill": Workload("prefill", 2, 5, dtype="float32"),
    "decode": Workload("decode", 2, context=6, dtype="float32"),
    "train": Workload("train", 2, 5, dtype="float32"),
}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")
GLOBAL_HOOKS = [name for name in vars(everywhere) if name.startswith("_global_") and "hook" in name]


def users(device: str) -> nn.Module:
    """A model as a user has it: hooks, some parts in evaluation, some frozen, one with a gradient."""
    model = build_model(explorer.load(BLUEPRINT).plan(), device=device, dtype=torch.float32).train()
    model.stack.layers[0].eval()
    model.head.register_forward_hook(lambda *_: None)
    model.stack.layers[1].register_full_backward_hook(lambda *_: None)
    first, second, *_ = model.parameters()
    first.grad = torch.ones_like(first)
    second.requires_grad_(False)
    return model


def settings() -> dict[str, Any]:
    """What belongs to the whole process."""
    return {
        "torch's numbers": torch.get_rng_state().tolist(),
        "Python's numbers": random.getstate(),
        "numpy's numbers": repr(np.random.get_state()),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "hooks": {name: dict(getattr(everywhere, name) or {}) for name in GLOBAL_HOOKS},
    }


def state(module: nn.Module) -> dict[str, Any]:
    """All of a module that a pass could change."""
    return {
        "modes": {name: part.training for name, part in module.named_modules()},
        "parts": {name: id(part) for name, part in module.named_modules(remove_duplicate=False)},
        "hooks": {(name, of): dict(getattr(p, of)) for name, p in module.named_modules() for of in HOOKS},
        "attributes": {name: sorted(vars(part)) for name, part in module.named_modules()},
        "tensors": {name: _tensor(t) for name, t in [*module.named_parameters(), *module.named_buffers()]},
    }


def _tensor(tensor: Tensor) -> tuple[Any, ...]:
    def values(some: Tensor | None) -> Any:
        return None if some is None else some.tolist() if some.device != META else some.shape

    return id(tensor), tensor._version, tensor.requires_grad, values(tensor.detach()), values(tensor.grad)


def walked(module: nn.Module, phase: str) -> None:
    plan = explorer.load(BLUEPRINT).plan()
    subject = Subject(module, plan, None, True, torch.float32)  # type: ignore[arg-type]
    walk(subject, step_of(subject, PHASES[phase].settled(encoder=False)), Observations())


def audited(module: nn.Module, phase: str) -> None:
    plan, bench = explorer.load(BLUEPRINT).plan(), Workbench()
    counted = count(plan, [PHASES[phase]], bench=bench)
    assert audit(counted.costs, counted.params, Subjects(plan).model("float32"), bench.observations) == []


def crosschecked(module: nn.Module, phase: str) -> None:
    plan = explorer.load(BLUEPRINT).plan()
    cost, _ = count(plan, [PHASES[phase]]).costs
    found = crosscheck(
        plan, cost.name, cost.workload, matmul_flops=cost.matmul_flops, exact=cost.matmul_flops_exact, params=None
    )
    assert found.tools


def run(module: nn.Module, phase: str) -> None:
    explorer.run({**BLUEPRINT, "workloads": [{"phase": phase, "context" if phase == "decode" else "tokens": 4}]})


ACTIONS: dict[str, Callable[[nn.Module, str], None]] = {
    "walk": walked,
    "audit": audited,
    "cross-check": crosschecked,
    "run": run,
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("action", ACTIONS)
def test_counting_leaves_everything_as_it_was(action: str, phase: str) -> None:
    module = users("meta")
    before, around = state(module), settings()
    ACTIONS[action](module, phase)
    assert settings() == around
    assert state(module) == before


@pytest.mark.parametrize("train", [False, True])
def test_a_module_runs_under_a_trace_as_it_runs_without(train: bool) -> None:
    """Same results, gradients, running averages and draws; only what autograd and the module itself do is done."""

    def step(traced: bool) -> tuple[Any, ...]:
        torch.manual_seed(0)
        module = users("cpu")
        module.train(train)
        ids = torch.arange(10).view(2, 5)
        torch.manual_seed(1)
        hooks, modes = state(module)["hooks"], state(module)["modes"]
        if traced:
            with Trace() as trace:
                out = module(ids)
                out.sum().backward()
            assert trace.counts().matmul_flops > 0
        else:
            out = module(ids)
            out.sum().backward()
        after = state(module)
        assert after["modes"] == modes
        assert after["hooks"].keys() == hooks.keys()
        assert [len(found) for found in after["hooks"].values()] == [len(found) for found in hooks.values()]
        tensors = [values for _, *values in after["tensors"].values()]
        return out.tolist(), tensors, after["attributes"], torch.get_rng_state().tolist()

    assert step(True) == step(False)
