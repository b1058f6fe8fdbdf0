"""Initial weights: the model's choice first, then what a residual's paper prescribes for the branches it adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from explorer.assembly.residual import Residual
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.registry.chosen import Chosen

BranchWeights = Mapping[str, Sequence[Tensor]]
_ROLES = ("value", "input", "output")


@runtime_checkable
class OffersBranchWeights(Protocol):
    """A sublayer that names its weights by role: {"value": [...], "input": [...], "output": [...]}."""

    def branch_weights(self) -> BranchWeights: ...


@runtime_checkable
class OffersLinearMaps(Protocol):
    """A module that holds linear maps, (out, in) weights with or without a bias, which are no nn.Linear: experts'."""

    def linear_maps(self) -> Iterator[tuple[Tensor, Tensor | None]]: ...


@dataclass(frozen=True)
class Depth:
    """The residual sites of one stack and its number of layers."""

    parts: Sequence[Sublayer | ParallelSublayers]
    layers: int


class Init(Protocol):
    """Sets the weights of a fresh model."""

    def apply(self, model: nn.Module, stacks: Sequence[Depth]) -> None: ...


class TorchInit:
    """Every module keeps what its own constructor drew."""

    def apply(self, model: nn.Module, stacks: Sequence[Depth]) -> None:
        """Changes nothing."""


class NormalInit:
    """Linear and embedding weights N(0, std^2), biases 0. Radford et al. 2019 (GPT-2).

    output: `depth` divides the std of the weights that write into the stream by sqrt(2 layers).
    """

    def __init__(self, *, std: float = 0.02, output: str = "none") -> None:
        self.std = std
        self.by_depth = {"none": False, "depth": True}[output]

    def apply(self, model: nn.Module, stacks: Sequence[Depth]) -> None:
        _set_tables(model, lambda weight: nn.init.normal_(weight, std=self.std))
        for stack in stacks if self.by_depth else ():
            for part in stack.parts:
                for weight in branch_weights(part)["output"]:
                    weight.div_(math.sqrt(2 * stack.layers))


class XavierInit:
    """Linear and embedding weights U(-a, a), a = sqrt(6 / (rows + columns)), biases 0. Glorot & Bengio 2010."""

    def apply(self, model: nn.Module, stacks: Sequence[Depth]) -> None:
        _set_tables(model, nn.init.xavier_uniform_)


INITS: Mapping[str, Callable[..., Init]] = {"torch": TorchInit, "normal": NormalInit, "xavier": XavierInit}


@torch.no_grad()
def initialise(model: nn.Module, chosen: Chosen, stacks: Sequence[Depth]) -> None:
    """Apply the chosen initialisation, then `init_branch` of each residual to the sublayers that it adds."""
    INITS[chosen.name](**chosen.arguments()).apply(model, stacks)
    for stack in stacks:
        for part in stack.parts:
            if rescales(type(part.residual)):
                part.residual.init_branch(branch_weights(part))


def rescales(residual: type[Residual]) -> bool:
    return residual.init_branch is not Residual.init_branch


def branch_weights(part: Sublayer | ParallelSublayers) -> dict[str, list[Tensor]]:
    """The weights of a site's sublayers by role; sublayers that offer none add none."""
    gathered: dict[str, list[Tensor]] = {role: [] for role in _ROLES}
    for branch in part.branches:
        if isinstance(branch, OffersBranchWeights):
            offered = branch.branch_weights()
            for role in _ROLES:
                gathered[role].extend(offered[role])
    return gathered


def silent_branch(residual: type[Residual], branches: Sequence[nn.Module]) -> str | None:
    """Why a residual cannot initialise the sublayers it adds, or None."""
    silent = [type(branch).__name__ for branch in branches if not isinstance(branch, OffersBranchWeights)]
    if not silent or not rescales(residual):
        return None
    return f"residual {residual.__name__} sets its sublayer's weights, but {silent[0]} has no branch_weights()"


def _set_tables(model: nn.Module, fill: Callable[[Tensor], object]) -> None:
    for module in _outside_residuals(model):
        if isinstance(module, nn.Embedding):
            fill(module.weight)
        for weight, bias in _linear_maps(module):
            fill(weight)
            if bias is not None:
                nn.init.zeros_(bias)


def _linear_maps(module: nn.Module) -> Iterator[tuple[Tensor, Tensor | None]]:
    """The linear maps that a module itself holds, not its children."""
    if isinstance(module, nn.Linear):
        yield module.weight, module.bias
    elif isinstance(module, OffersLinearMaps):
        yield from module.linear_maps()


def _outside_residuals(module: nn.Module) -> Iterator[nn.Module]:
    """All modules but those of residuals: their start is part of what their paper defines."""
    if isinstance(module, Residual):
        return
    yield module
    for child in module.children():
        yield from _outside_residuals(child)
