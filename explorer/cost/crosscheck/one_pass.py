"""One pass as tools take it: a module whose inputs are all tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.wiring import Pass
from explorer.cost.crosscheck.stage import Stage
from explorer.cost.ledger.causal_bias import causal_biases
from explorer.cost.parts.trees import Like, Tree, put_together, take_apart, tensors_in


@dataclass(frozen=True)
class OnePass:
    """`module(*inputs)` is one forward; train: it is called in training mode, and backward follows."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    train: bool = False

    @contextmanager
    def mode(self, *, gradients: bool = False) -> Iterator[None]:
        """Inside, the module is in training mode or in evaluation, and a compiled one runs as it is written.

        At the end every part of it is in the mode it was in, a tool's switching included.
        """
        before = [(module, module.training) for module in self.module.modules()]
        self.module.train(self.train)
        try:
            eagerly = torch.compiler.set_stance("force_eager")
            with torch.set_grad_enabled(gradients and self.train), eagerly, causal_biases():
                yield
        finally:
            for module, training in before:
                module.training = training

    def forward(self) -> Any:
        """What comes out."""
        with self.mode(gradients=True):
            return self.module(*self.inputs)

    def all(self) -> None:
        """Forward, and in training backward from everything that comes out; gradients stay behind."""
        out = [leaf for leaf in tensors_in(self.forward()) if leaf.requires_grad]
        if self.train and out:
            with self.mode():
                torch.autograd.backward(out, [torch.empty_like(leaf) for leaf in out])


class _Alone(nn.Module):
    """A layer from the tensors of its state to those of the next."""

    def __init__(self, layer: Block, run: Pass, tree: Tree) -> None:
        super().__init__()
        self.layer = layer
        self.run, self.tree = run, tree
        self.rewind: Callable[[], None] | None = None if run.cache is None else run.cache.timing_mark()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if self.rewind is not None:
            self.rewind()
        state, context, ids, shared = put_together(self.tree, list(tensors))
        run = Pass(context, self.run.mask, self.run.context_mask, self.run.cache, ids, shared)
        out = self.layer(state, run)
        return tuple(tensors_in([out, run.shared]))


def one_pass(stage: Stage) -> OnePass:
    """The pass of a stage. In training whatever can have a gradient asks for it."""
    state, run = stage.inputs()
    tree, tensors = take_apart((state, run.context, run.ids, run.shared))
    fresh = tuple(Like.of(t).make(stage.device).requires_grad_(stage.train and t.is_floating_point()) for t in tensors)
    return OnePass(_Alone(stage.layer, run, tree), fresh, stage.train)
