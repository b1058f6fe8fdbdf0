"""Tensors of the CPU without memory or values: what torch keeps and frees is seen at any size, in milliseconds.

On meta torch takes other paths: its attention falls apart into products, whose scores are then kept for backward.
A fake CUDA tensor is none of ours: where torch has no CUDA, its backward ends the interpreter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from explorer.assembly.build import Dtype, build_block, build_model
from explorer.assembly.model import BlockModule, Model
from explorer.blueprint.plan import ModelPlan
from explorer.cost.ledger.causal_bias import causal_biases
from explorer.registry.chosen import Chosen, Make


@contextmanager
def fake_cpu() -> Iterator[None]:
    """Every tensor made inside is a fake one of the CPU, however large, and operators on such tensors compute nothing.

    What reads a value (`.item()`, a branch on it) raises torch's DataDependentOutputException. A module made outside
    cannot be moved in: see `fake_model` and `on_fake_cpu`.
    """
    with causal_biases(), _mode():
        yield


@cache
def _mode() -> FakeTensorMode:
    # One for all: tensors of two modes cannot meet.
    return FakeTensorMode()


def fake_model(plan: ModelPlan, dtype: Dtype | None = None, make: Make = Chosen.build) -> Model:
    """The whole model of a plan of fake CPU tensors, to be called inside `fake_cpu`; for the rest see `build_model`."""
    with fake_cpu():
        return build_model(plan, device="cpu", dtype=dtype, make=make)


def fake_block(
    plan: ModelPlan, name: str | None = None, dtype: Dtype | None = None, make: Make = Chosen.build
) -> BlockModule:
    """One block of a plan of fake CPU tensors, to be called inside `fake_cpu`; for the rest see `build_block`."""
    with fake_cpu():
        return build_block(plan, name, device="cpu", dtype=dtype, make=make)


@contextmanager
def on_fake_cpu(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, modules that were built on meta have fake CPU tensors in place of their parameters and buffers.

    All that a call reads must belong to these modules: a tensor that stays on meta raises torch's error.
    """
    every = [module for top in modules for module in top.modules()]
    tables: list[dict[str, Any]] = [table for module in every for table in (module._parameters, module._buffers)]
    before = [dict(table) for table in tables]
    twins: dict[int, Tensor] = {}  # a weight that stands in two places is one
    with fake_cpu():
        try:
            for table in tables:
                for name, tensor in table.items():
                    if tensor is not None and tensor.is_meta:
                        if id(tensor) not in twins:
                            twins[id(tensor)] = _twin(tensor)
                        table[name] = twins[id(tensor)]
            yield
        finally:
            for table, entries in zip(tables, before, strict=True):
                table.update(entries)


def _twin(tensor: Tensor) -> Tensor:
    fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(fresh, tensor.requires_grad)
    return fresh.requires_grad_(tensor.requires_grad)
