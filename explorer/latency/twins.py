"""Components that compute what another one does in another way, as they say themselves, and the weights of such a pair.

On its class such a component has `same_as`, the other's name in a blueprint, and `load_from(other)`, which takes over
the other's weights. It then equals the other wherever both have the same options, and the other no more than these.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
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
def share_weights(one: nn.Module, other: nn.Module) -> None:
    """Put the weights of `other` into `one`, by name, and as `load_from` says where they differ in a declared pair.

    Where it is `other` that says how, it gets the weights of that component from `one`.
    Raises: MeasureError where they differ in something else.
    """
    for pair in _pairs(one, other):
        _share(*pair)


@torch.no_grad()
def equal_moves(one: nn.Module, other: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """For all trained parameters of two blocks with equal weights small moves (float32): moved so they are equal again.

    Slopes along these moves are equal where both compute the same, however `load_from` maps the weights of the one to
    those of the other (chain rule).
    """
    moves: dict[Tensor, Tensor] = {}
    for pair in _pairs(one, other):
        moves |= _bent(*pair, len(moves)) if _declared(*pair) else _same(*pair, len(moves))
    first, second = ([moves[weight] for weight in _trained(module)] for module in (one, other))
    return first, second


def moving_bytes(one: nn.Module, other: nn.Module) -> tuple[int, int]:
    """Bytes that `equal_moves` of two such blocks keeps, and at most what it takes meanwhile."""
    bent = [_elements(*pair) for pair in _pairs(one, other) if _declared(*pair)]
    kept = (_elements(one, other) + sum(bent)) // 2 * 4
    return kept, kept + 16 * max(bent, default=0)


def _pairs(one: nn.Module, other: nn.Module, path: str = "") -> Iterator[tuple[nn.Module, nn.Module]]:
    """The parts of two blocks that share weights each by itself: declared pairs as wholes, of all else every module."""
    if _declared(one, other):
        yield one, other
        return
    if _outline(one) != _outline(other):
        kinds = " and ".join(type(module).__name__ for module in (one, other))
        raise MeasureError(f"not compared: {path}: {kinds} hold other weights, and neither says that it is the other")
    yield one, other
    for name, child in one.named_children():
        yield from _pairs(child, other.get_submodule(name), f"{path}.{name}" if path else name)


def _declared(one: nn.Module, other: nn.Module) -> bool:
    return type(one) is not type(other) and (isinstance(one, Twin) or isinstance(other, Twin))


def _share(one: nn.Module, other: nn.Module) -> None:
    if not _declared(one, other):
        theirs = _own(other)
        for name, tensor in _own(one).items():
            tensor.copy_(theirs[name])
    elif isinstance(one, Twin):
        one.load_from(other)
    elif isinstance(other, Twin):
        other.load_from(one)


def _same(one: nn.Module, other: nn.Module, seed: int) -> dict[Tensor, Tensor]:
    """Moves of the weights that two modules hold themselves, under one name in both."""
    moves: dict[Tensor, Tensor] = {}
    for number, (name, weight) in enumerate(other.named_parameters(recurse=False)):
        moves[weight] = moves[one.get_parameter(name)] = _drawn(weight, torch.float32, seed + number)
    return moves


def _bent(one: nn.Module, other: nn.Module, seed: int) -> dict[Tensor, Tensor]:
    """Moves of the weights of a declared pair, by what `load_from` makes of moves in float64."""
    ours, theirs = (copy.deepcopy(module).double() for module in (one, other))
    _share(ours, theirs)  # again: in float64 a map of weights rounds otherwise
    weights = [*_trained(ours), *_trained(theirs)]
    before = [weight.clone() for weight in weights]
    for number, weight in enumerate(weights):
        weight.add_(_drawn(weight, weight.dtype, seed + number), alpha=_MOVE)
    _share(ours, theirs)
    moved = (new.sub_(old).div_(_MOVE).float() for new, old in zip(weights, before, strict=True))
    return dict(zip(itertools.chain(_trained(one), _trained(other)), moved, strict=True))


def _drawn(weight: Tensor, dtype: torch.dtype, seed: int) -> Tensor:
    drawn = torch.Generator(weight.device).manual_seed(seed)
    return torch.randn(weight.shape, generator=drawn, dtype=dtype, device=weight.device)


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


def _elements(*modules: nn.Module) -> int:
    return sum(weight.numel() for module in modules for weight in module.parameters())


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
