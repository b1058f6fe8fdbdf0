"""A block taken apart: its sublayers, each by itself, and what connects them. Their times add up to about the block's.

A thousand combinations of ten attentions, ten feed-forwards and ten norms have thirty pieces to measure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.cache import Cache, CacheView
from explorer.assembly.model import BlockModule
from explorer.assembly.position import Position
from explorer.assembly.positions import acts_in_attention
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.latency.clock import Call
from explorer.latency.runner import Forward, Step

CONNECTION = "connection"
"""All of a block but its sublayers: norms, residual, dropout on what a sublayer returns, enter and leave."""


def pieces(step: Step) -> dict[str, Piece]:
    """The steps of a block's pieces: `attention`, `cross_attention`, `feedforward` as far as it has them, CONNECTION.

    The block runs once. A sublayer is called with what it got there; the connection runs with stand-ins that return
    what the sublayers returned. A cache is before each call where it was before that call in the block; in training the
    gradient of each output is the one that arrived there.
    """
    block = step.module
    assert isinstance(block, BlockModule), "a block alone has pieces that are measured"
    branches = dict(_branches(block.block))
    seen = _Seen(step.phase)
    with ExitStack() as hooks:
        for module in (block, *(branch for branch, _ in branches.values())):
            seen.watch(module, hooks)
        step.through(block)()
    hollow = _with_stand_ins(block, {branch: _StandIn(seen.of[branch].output) for branch, _ in branches.values()})
    found = {name: seen.piece(branch, branch, positions) for name, (branch, positions) in branches.items()}
    return {**found, CONNECTION: seen.piece(block, hollow)}


@dataclass(frozen=True)
class Piece:
    """One step of a piece, as a `Step` of the runner.

    positions: of the stack, those that the module uses and does not own. cache: of the whole block; rewind: to where
    the piece begins. gradient: of the output, in training.
    """

    phase: str
    module: nn.Module
    positions: tuple[nn.Module, ...]
    inputs: tuple[Tensor | None, ...]
    options: Mapping[str, Any]
    cache: Cache | None
    rewind: Callable[[], None]
    gradient: Tensor | None

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and of what it holds in the cache."""
        view = self.options.get("cache")
        held = view.held().total if isinstance(view, CacheView) else 0
        buffers = [buffer for owner in self._owners for buffer in owner.buffers()]
        return held + sum(tensor.nbytes for tensor in (*self._parameters, *buffers))

    def through(self, forward: Forward) -> Call:
        """The call that runs the piece with `forward` in its module's place."""
        if self.gradient is not None:
            return self._training(forward, self.gradient)

        @torch.no_grad()
        def step() -> Tensor:
            self.rewind()
            return forward(*self.inputs, **self._fresh_options())

        return step

    def result(self, forward: Forward, *inputs: Tensor | None) -> Tensor:
        """What `forward` makes of inputs in the place of the piece's own, on a copy of the cache."""
        self.rewind()
        return forward(*inputs, **self._shared_tensors(self._fresh_options()))

    def copied(self) -> Piece:
        """The same piece with weights and a cache of its own."""
        self.rewind()
        tree = self.module, self.positions, dict(self.options), self.cache
        module, positions, options, cache = self._shared_tensors(tree)
        rewind = self.rewind if cache is None else cache.timing_mark()
        return Piece(self.phase, module, positions, self.inputs, options, cache, rewind, self.gradient)

    @property
    def _owners(self) -> tuple[nn.Module, ...]:
        return self.module, *self.positions

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for owner in self._owners for parameter in owner.parameters()]

    def _training(self, forward: Forward, gradient: Tensor) -> Call:
        given = [tensor for tensor in (*self.inputs, *self.options.values()) if isinstance(tensor, Tensor)]
        leaves = [tensor for tensor in (*given, *self._parameters) if tensor.requires_grad]

        @torch.enable_grad()
        def step() -> Tensor:
            for leaf in leaves:
                leaf.grad = None
            y = forward(*self.inputs, **self._fresh_options())
            y.backward(gradient)
            return y

        return step

    def _fresh_options(self) -> dict[str, Any]:
        """With what layers share as it was before: the piece may put more into it."""
        options = dict(self.options)
        return {**options, "shared": dict(options["shared"])} if "shared" in options else options

    def _shared_tensors(self, tree: Any) -> Any:
        """A deep copy that has the piece's inputs in common with it."""
        given = [*self.inputs, *self.options.values()]
        return copy.deepcopy(tree, {id(tensor): tensor for tensor in given if isinstance(tensor, Tensor)})


def _nowhere() -> None:
    """There is no cache to rewind."""


@dataclass
class _Call:
    """What a module was called with and returned, cut off from the graph around it."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    rewind: Callable[[], None]
    output: Any = None
    gradient: Tensor | None = None


@dataclass
class _Seen:
    """The calls of a block and of its sublayers in one step; the block is called first."""

    phase: str
    cache: Cache | None = None
    of: dict[nn.Module, _Call] = field(default_factory=dict)

    def watch(self, module: nn.Module, hooks: ExitStack) -> None:
        before = module.register_forward_pre_hook(self._before, with_kwargs=True)
        after = module.register_forward_hook(self._after)
        hooks.callback(before.remove)
        hooks.callback(after.remove)

    def piece(self, module: nn.Module, runs: nn.Module, positions: tuple[nn.Module, ...] = ()) -> Piece:
        """runs: what is called as the module was; for positions see `Piece`."""
        call = self.of[module]
        inputs, options = tuple(map(_cut, call.inputs)), {name: _cut(given) for name, given in call.options.items()}
        return Piece(self.phase, runs, positions, inputs, options, self.cache, call.rewind, call.gradient)

    def _before(self, module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        if isinstance(module, BlockModule):
            self.cache = options.get("cache")
        rewind = _nowhere if self.cache is None else self.cache.timing_mark()
        shared = {"shared": dict(options["shared"])} if "shared" in options else {}
        self.of[module] = _Call(inputs, {**options, **shared}, rewind)

    def _after(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        call = self.of[module]
        call.output = output.detach()
        if output.requires_grad:
            output.register_hook(lambda gradient: setattr(call, "gradient", gradient))


def _cut(given: Any) -> Any:
    """A tensor as a leaf of a graph of its own; all else as it is."""
    return given.detach().requires_grad_(given.requires_grad) if isinstance(given, Tensor) else given


def _branches(block: Block) -> Iterator[tuple[str, tuple[nn.Module, tuple[Position, ...]]]]:
    """The sublayers by name, with the positions of the stack that act in each."""
    for name, part in block.named_children():
        if isinstance(part, Sublayer):
            yield name, (part.branch, _acting(part.positions))
        else:
            assert isinstance(part, ParallelSublayers), part
            yield from ((inner, (branch, _acting(part.positions[inner]))) for inner, branch in part.sublayers.items())


def _acting(positions: tuple[Position, ...]) -> tuple[Position, ...]:
    return tuple(position for position in positions if acts_in_attention(type(position)))


def _with_stand_ins(module: nn.Module, stand_ins: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The module with others in the place of some within it; all else in it is its own."""
    around = {part for part in module.modules() if any(inner in stand_ins for inner in part.modules())}
    replaced = {id(part): stand_in for part, stand_in in stand_ins.items()}
    return copy.deepcopy(module, {**{id(part): part for part in module.modules() if part not in around}, **replaced})


class _StandIn(nn.Module):
    """Returns what a sublayer returned. In training a gradient goes through to its inputs, as it does there."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, **others: Any) -> Any:
        if not torch.is_grad_enabled():
            return self.output
        return _HandOver.apply(self.output, x, *(given for given in others.values() if isinstance(given, Tensor)))

    def __deepcopy__(self, memo: Any) -> _StandIn:
        return self


class _HandOver(torch.autograd.Function):
    """The output for the inputs; the inputs themselves, which are there and no constants, as their gradients."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.inputs = inputs
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        needed = ctx.needs_input_grad[1:]
        return None, *(given.detach() if wanted else None for given, wanted in zip(ctx.inputs, needed, strict=True))
