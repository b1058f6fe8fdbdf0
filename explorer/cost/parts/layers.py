"""The parts of one stack, called in the order in which its forward calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from torch import Tensor, nn

from explorer.assembly.block import Block
from explorer.assembly.embedding import Embedding
from explorer.assembly.sites import sublayers
from explorer.assembly.stack import Stack
from explorer.assembly.sublayer import Branch, ParallelSublayers, Sublayer
from explorer.blueprint.plan import BlockPlan, StackPlan
from explorer.cost.parts.observation import Step
from explorer.cost.parts.part import Inputs, Part, Role
from explorer.cost.parts.parts import Parts, branch_inputs
from explorer.cost.parts.tape import Tape


@dataclass
class Layers:
    """A stack on a tape. step: without `held` where it keeps no cache. ids: token ids, None without a vocabulary.

    fillings: see `Part.filling`, by role. context: what cross-attention reads. shared: lives as long as the pass.
    """

    stack: Stack
    plan: StackPlan
    tape: Tape
    step: Step
    ids: Tensor | None
    fillings: Mapping[Role, Inputs] = field(default_factory=dict)
    context: Tensor | None = None
    shared: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def parts(self) -> Parts:
        return Parts(self.tape.observations.kind)

    def call(self, part: Part, inputs: Any) -> Any:
        return self.tape.call(part, inputs, self.step)

    def embed(self, given: Tensor, table: Embedding | None) -> Tensor:
        """Token ids, or vectors as they are, with what is added to them."""
        offset = 0 if self.step.held is None else self.step.held.tokens
        x: Tensor = self.call(self.parts.embed(self._outside("embed"), self.stack, table, offset), given)
        return x

    def enter(self, x: Tensor) -> Any:
        """The state of the residual stream as the first layer gets it."""
        for first in self.stack._enter:
            return self.call(self.parts.enter(self._outside("enter"), first), x)
        return x

    def leave(self, state: Any) -> Any:
        """What leaves the stack, before the final norm."""
        last = self.stack.leave
        return state if last is None else self.call(self.parts.leave(self._outside("leave"), last), state)

    def final_norm(self, x: Tensor) -> Any:
        norm, chosen = self.stack.final_norm, self.plan.final_norm
        if norm is None or chosen is None:
            return x
        return self.call(self.parts.norm(self._outside("final_norm"), norm, chosen), x)

    def through(self, x: Tensor) -> Any:
        """What leaves the stack, final norm included, for what enters it."""
        state = self.enter(x)
        for index, (layer, name) in enumerate(zip(self.stack.layers, self.plan.layers, strict=True)):
            assert isinstance(layer, Block), layer
            state = self.layer(layer, self.plan.blocks[name], index, state)
        return self.final_norm(self.leave(state))

    def layer(self, layer: Block, block: BlockPlan, index: int, state: Any) -> Any:
        """The state after one layer."""
        for name, part in layer.named_children():
            site = _Site(self, partial(Role, self.plan.name, block=block.name, layer=index), name, block)
            if isinstance(part, Sublayer):
                branch = Branch(part.branch, part.wiring, part.dropout, part.positions)
                state = site.around(part, state, partial(site.branch, name, branch))
            else:
                assert isinstance(part, ParallelSublayers), part
                state = site.around(part, state, partial(site.parallel, part))
        return state

    def _outside(self, name: str) -> Role:
        return Role(self.plan.name, name)


@dataclass(frozen=True)
class _Site:
    """One residual site of a layer, around one sublayer, or around all of a parallel layer."""

    layers: Layers
    at: Callable[..., Role]
    name: str
    block: BlockPlan

    def around(self, part: Sublayer | ParallelSublayers, state: Any, inner: Callable[[Tensor], Tensor]) -> Any:
        """As in `Sublayer.forward`."""
        call, parts, residual = self.layers.call, self.layers.parts, part.residual
        x, state = call(parts.read(self._role("read"), residual), state)
        if part.norm is not None:
            x = self._norm("norm", part.norm, x)
        y = inner(x)
        if part.norm_out is not None:
            y = self._norm("norm_out", part.norm_out, y)
        state = call(parts.write(self._role("write"), residual), {"state": state, "y": y})
        return state if part.norm_post is None else self._norm("norm_post", part.norm_post, state)

    def branch(self, name: str, branch: Branch, x: Tensor) -> Tensor:
        """One sublayer, and the dropout on its output."""
        layers, wiring = self.layers, branch.wiring
        role, chosen = self.at("branch", sublayer=name), sublayers(self.block)[name]
        cached = layers.step.held is not None
        part = layers.parts.branch(role, branch, chosen, cached, layers.fillings.get(role))
        offered = {"context": layers.context if wiring.cross else None, "ids": layers.ids, "shared": layers.shared}
        y, shared = layers.call(part, branch_inputs(wiring, x, offered))
        layers.shared = shared if "shared" in wiring.names else layers.shared
        if branch.dropout:
            y = layers.call(
                layers.parts.dropout(self.at("dropout", sublayer=name), branch.dropout, layers.step.train), y
            )
        return y

    def parallel(self, part: ParallelSublayers, x: Tensor) -> Tensor:
        """All sublayers of a layer on one input."""
        outputs = []
        for name, module in part.sublayers.items():
            own = self._norm("norm", part.norms[name], x, name) if name in part.norms else x
            outputs.append(self.branch(name, Branch(module, *part.calls[name], part.positions[name]), own))
        if len(outputs) == 1:
            return outputs[0]
        total: Tensor = self.layers.call(self.layers.parts.sum(self._role("sum")), outputs)
        return total

    def _norm(self, name: str, norm: nn.Module, x: Any, sublayer: str | None = None) -> Any:
        role = self.at(name, sublayer=sublayer or self.name)
        return self.layers.call(self.layers.parts.norm(role, norm, self.block.norm), x)

    def _role(self, name: str) -> Role:
        return self.at(name, sublayer=self.name)
