"""Builds models and blocks: on which device, in which dtype, from which seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from explorer.assembly.construction import construction
from explorer.assembly.embedding import make_embedding
from explorer.assembly.head import make_head
from explorer.assembly.init import Depth, initialise
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.stack import Stack, make_layer, make_stack
from explorer.blueprint.blueprint import Blueprint
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.errors import NOWHERE, BlueprintError, Problem, UsageError, did_you_mean
from explorer.registry.chosen import Chosen, Make

Device = torch.device | str
Dtype = torch.dtype | str


def build(
    blueprint: Blueprint | str | Path | Mapping[str, Any],
    scope: Literal["model", "block"] = "model",
    name: str | None = None,
    device: Device = "meta",
    dtype: Dtype | None = None,
) -> Model | BlockModule:
    """The model of a blueprint as written (axes aside), or one of its blocks; for the rest see `build_model`.

    blueprint: as loaded, or what `explorer.load` takes.
    name: of the block, as in reports: `block`, a name of `blocks`, `encoder.block`; needed where there are several.
    Raises: BlueprintError for what is written, RefusedError for what cannot be built, UsageError for the arguments.
    """
    if scope not in _BUILDERS:
        raise UsageError(f"scope must be 'model' or 'block', not {scope!r}")
    return _BUILDERS[scope](_loaded(blueprint).plan(), name, device=device, dtype=dtype)


def _loaded(blueprint: Blueprint | str | Path | Mapping[str, Any]) -> Blueprint:
    if isinstance(blueprint, Blueprint):
        return blueprint
    if isinstance(blueprint, str | Path | Mapping):
        return load(blueprint)
    message = f"a blueprint is a path, a published name or a mapping, not {type(blueprint).__name__}"
    raise BlueprintError(Problem(NOWHERE, "", message))


def build_model(
    plan: ModelPlan, *, device: Device = "meta", dtype: Dtype | None = None, make: Make = Chosen.build
) -> Model:
    """The whole model of a plan, in training mode.

    device: "meta" gives shapes without memory or values. dtype: of the parameters; None: torch's default.
    Weights are drawn from the plan's seed; the caller's random numbers are left as they were. make: see `Make`.
    Raises: RefusedError where a component refuses its sizes or a combination is undefined.
    """
    with construction(plan.seed, device, dtype):
        stacks = [make_stack(plan, stack, make) for stack in plan.stacks]
        embedding = make_embedding(plan)
        head = make_head(plan, None if embedding is None else embedding.table)
        encoder = stacks[0] if plan.encoder is not None else None
        model = Model(stacks[-1], encoder=encoder, embedding=embedding, head=head)
        _initialise(model, plan, list(zip(stacks, plan.stacks, strict=True)))
    return model


def build_block(
    plan: ModelPlan,
    name: str | None = None,
    *,
    device: Device = "meta",
    dtype: Dtype | None = None,
    make: Make = Chosen.build,
) -> BlockModule:
    """One block of a plan at the place of its last layer, ready to be called; for the rest see `build_model`.

    name: see `build`. Raises: RefusedError, and UsageError where no block is called so.
    """
    stack, block = _find(plan, name)
    with construction(plan.seed, device, dtype):
        module = BlockModule(make_layer(plan, stack, block, make))
        _initialise(module, plan, [(module.stack, stack)])
    return module


def _model(plan: ModelPlan, name: str | None, *, device: Device, dtype: Dtype | None) -> Model:
    if name is not None:
        raise UsageError(f"a model is whole: name {name!r} belongs to scope='block'")
    return build_model(plan, device=device, dtype=dtype)


_BUILDERS: Mapping[str, Callable[..., Model | BlockModule]] = {"model": _model, "block": build_block}


def _initialise(module: Model | BlockModule, plan: ModelPlan, stacks: list[tuple[Stack, StackPlan]]) -> None:
    if any(parameter.is_meta for parameter in module.parameters()):
        return  # there are no values to set
    initialise(module, plan.init, [Depth(list(stack.parts()), len(of.layers)) for stack, of in stacks])


def _find(plan: ModelPlan, name: str | None) -> tuple[StackPlan, str]:
    """The stack and the block's name in it."""
    labels = {stack.label(block): (stack, block) for stack in plan.stacks for block in stack.counts}
    if name is None and len(labels) == 1:
        (found,) = labels.values()
        return found
    if name is None:
        raise UsageError(f"this model has several blocks; name one of {', '.join(labels)}")
    if name not in labels:
        hint = did_you_mean(name, labels)
        raise UsageError(f"no block is called {name!r}; there are {', '.join(labels)}{f'; {hint}' if hint else ''}")
    return labels[name]
