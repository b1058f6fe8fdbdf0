"""A stack of layers with what they share: positions, the end of the residual stream, the final norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.block_builder import BlockBuilder
from explorer.assembly.embedding import Embedding
from explorer.assembly.intake import Intake
from explorer.assembly.position import Position
from explorer.assembly.positions import Positions
from explorer.assembly.residual import Residual
from explorer.assembly.sites import Sites
from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.assembly.wiring import Pass
from explorer.blueprint.plan import ModelPlan, StackPlan
from explorer.errors import UsageError
from explorer.registry.chosen import Chosen, Make


class Stack(nn.Module):
    """final_norm(leave(layers(enter(x)))), (B, T, dim) -> (B, T, dim).

    position: what is added to embeddings, if anything. leave: the residual that closes the state, where its class needs
    one. dropout: rate on the embedding. intake: whether a mask and a cache can be given.
    """

    def __init__(
        self,
        layers: Sequence[Block],
        positions: nn.ModuleList,
        intake: Intake,
        *,
        position: Position | None = None,
        leave: Residual | None = None,
        final_norm: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.positions = positions
        self.layers = nn.ModuleList(layers)
        self.leave = leave
        self.final_norm = final_norm
        self.intake = intake
        self.dropout = dropout
        # In tuples: submodules of `positions` and of the first layer that has a site.
        self._position = () if position is None else (position,)
        self._enter = tuple(part.residual for part in self.parts())[:1]

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        state = self.enter(x)
        for layer in self.layers:
            state = layer(state, run)
        return self.close(state)

    def enter(self, x: Tensor) -> Any:
        """The state of the residual stream as the first layer gets it."""
        for first in self._enter:
            return first.enter(x)
        return x

    def close(self, state: Any) -> Tensor:
        """What leaves the stack, (B, T, dim): the state left, then the final norm."""
        if self.leave is not None:
            state = self.leave.leave(state)
        return state if self.final_norm is None else self.final_norm(state)

    def embed(self, tokens: Tensor, table: Embedding | None, offset: int) -> Tensor:
        """What enters the stack: token ids (B, T) through the table, or vectors (B, T, dim) as they are, with position.

        Raises: UsageError beyond the end of a table of learned positions.
        """
        placed = partial(self._placed, offset=offset)
        x = placed(tokens) if table is None else table(tokens, placed)  # (B, T, dim)
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def _placed(self, x: Tensor, offset: int) -> Tensor:
        for position in self._position:
            end = offset + x.shape[1]
            if position.max_tokens is not None and end > position.max_tokens:
                raise UsageError(
                    f"{end} tokens are more than the {position.max_tokens} that the learned positions hold"
                )
            x = position.embed(x, torch.arange(offset, end, device=x.device))
        return x

    def parts(self) -> Iterator[Sublayer | ParallelSublayers]:
        """All residual sites, in order."""
        for layer in self.layers:
            assert isinstance(layer, Block), layer
            yield from layer.parts()


def make_stack(plan: ModelPlan, stack: StackPlan, make: Make = Chosen.build) -> Stack:
    """All layers of a stack. make: see `Make`.

    Raises: RefusedError where a component refuses its sizes or a combination is undefined.
    """
    builder = BlockBuilder(_sites(plan, stack), Positions(plan.dim, stack.base.position, make, stack.name), make)
    layers = [builder.block(layer) for layer in range(len(stack.layers))]
    base = builder.positions.embedding(stack.base)
    norm = stack.final_norm
    return Stack(
        layers,
        builder.positions.module(base),
        builder.intake(),
        position=base,
        leave=builder.leave(),
        final_norm=None if norm is None else make(norm, {"dim": plan.dim}),
        dropout=stack.base.dropout.embedding,
    )


def make_layer(plan: ModelPlan, stack: StackPlan, name: str, make: Make = Chosen.build) -> Stack:
    """The last layer of that block name alone, at its place in the stack, without final norm and position of the entry.

    A block that no layer uses stands in the place of the last layer. make: see `Make`.
    """
    if name not in stack.layers:
        stack = replace(stack, layers=(*stack.layers[:-1], name))
    builder = BlockBuilder(_sites(plan, stack), Positions(plan.dim, stack.base.position, make, stack.name), make)
    last = max(layer for layer, this in enumerate(stack.layers) if this == name)
    block = builder.block(last)
    return Stack([block], builder.positions.module(None), builder.intake(), leave=builder.leave())


def _sites(plan: ModelPlan, stack: StackPlan) -> Sites:
    # By name: `make_layer` may have put a block in it that no layer of the plan uses.
    return Sites(plan, stack, encoder=plan.encoder is not None and stack.name == plan.encoder.name)
