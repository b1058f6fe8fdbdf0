"""Components that compute what another one does in another way, as they say themselves, and the weights of such a pair.

On its class such a component has `same_as`, the other's name in a blueprint, and `load_from(other)`, which takes over
the other's weights. It then equals the other wherever both have the same options, and the other no more than these.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from explorer.blueprint.plan import BlockPlan, ModelPlan
from explorer.errors import MeasureError
from explorer.latency.located import located
from explorer.registry.chosen import Chosen

# The root of float64's rounding: what a bent map of weights and what rounding make of a move are then equally small.
_MOVE = 2.0**-26


@runtime_checkable
class Twin(Protocol):
    """A component that says so, its class or one built."""

    same_as: str

    def load_from(self, other: Any) -> None: ...


def declared_equal(plan: ModelPlan, label: str, other_plan: ModelPlan, other_label: str) -> bool:
    """Whether two blocks, of which each has a label in its plan, differ, and in declared pairs of components only."""
    (stack, block), (other_stack, other_block) = located(plan, label), located(other_plan, other_label)
    names = [field.name for field in fields(BlockPlan) if field.name != "name"]
    pairs = [(getattr(block, name), getattr(other_block, name)) for name in names]
    pairs += [(stack.residual, other_stack.residual)]
    pairs += [(plan.dim, other_plan.dim), (plan.vocab, other_plan.vocab), (len(stack.layers), len(other_stack.layers))]
    apart = [pair for pair in pairs if pair[0] != pair[1]]
    return bool(apart) and all(_are_twins(*pair, block) for pair in apart)


@torch.no_grad()
def share_weights(one: nn.Module, other: nn.Module, path: str = "") -> None:
    """Put the weights of `other` into `one`, by name, and as `load_from` says where they differ in a declared pair.

    Where it is `other` that says how, it gets the weights of that component from `one`.
    Raises: MeasureError where they differ in something else.
    """
    if type(one) is not type(other) and isinstance(one, Twin):
        one.load_from(other)
    elif type(one) is not type(other) and isinstance(other, Twin):
        other.load_from(one)
    else:
        _copy_own(one, other, path)
        for name, child in one.named_children():
            share_weights(child, other.get_submodule(name), f"{path}.{name}" if path else name)


@torch.no_grad()
def equal_moves(one: nn.Module, other: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """For all trained parameters of two blocks with equal weights small moves (float64): moved so they are equal again.

    Slopes along these moves are equal where both compute the same, however `load_from` maps the weights of the one to
    those of the other (chain rule).
    """
    ours, theirs = (copy.deepcopy(module).double() for module in (one, other))
    share_weights(ours, theirs)  # again: in float64 a map of weights rounds otherwise
    weights = [[weight for weight in module.parameters() if weight.requires_grad] for module in (ours, theirs)]
    before = [[weight.clone() for weight in each] for each in weights]
    for number, weight in enumerate(itertools.chain(*weights)):
        drawn = torch.Generator(weight.device).manual_seed(number)
        weight.add_(torch.randn(weight.shape, generator=drawn, dtype=weight.dtype, device=weight.device), alpha=_MOVE)
    share_weights(ours, theirs)
    first, second = (
        [(new - old) / _MOVE for new, old in zip(*each, strict=True)] for each in zip(weights, before, strict=True)
    )
    return first, second


def _copy_own(one: nn.Module, other: nn.Module, path: str) -> None:
    """The tensors that a module holds itself, where the other has the same ones and the same parts."""
    ours, theirs = _own(one), _own(other)
    if _outline(one) != _outline(other):
        kinds = " and ".join(type(module).__name__ for module in (one, other))
        raise MeasureError(f"not compared: {path}: {kinds} hold other weights, and neither says that it is the other")
    for name, tensor in ours.items():
        tensor.copy_(theirs[name])


def _outline(module: nn.Module) -> Any:
    return {name: t.shape for name, t in _own(module).items()}, [name for name, _ in module.named_children()]


def _own(module: nn.Module) -> dict[str, Tensor]:
    """What it saves: other buffers are made of its options, and tell where those differ."""
    return {name: tensor for name, tensor in module.state_dict().items() if "." not in name}


def _are_twins(one: Any, other: Any, block: BlockPlan) -> bool:
    if not (isinstance(one, Chosen) and isinstance(other, Chosen)):
        return False
    return _is_twin(one, other, block) or _is_twin(other, one, block)


def _is_twin(one: Chosen, other: Chosen, block: BlockPlan) -> bool:
    """Whether `one` says that it equals `other`, and each option of `other` is that of `one`, or else its default."""
    constructor, component = one.component.constructor, other.component
    if not isinstance(constructor, Twin) or constructor.same_as not in (component.name, component.label):
        return False
    options = component.schema.parameters.items()
    return all(_set(one, name, block, p.default) == _set(other, name, block, p.default) for name, p in options)


def _set(chosen: Chosen, name: str, block: BlockPlan, default: Any) -> Any:
    """What an option is set to: as written, as the block has it, to its default, or `default` where there is none."""
    parameter = chosen.component.schema.parameters.get(name)
    if parameter is None or name in chosen.params:
        return chosen.params.get(name, default)
    return getattr(block, name) if parameter.menu else parameter.default
