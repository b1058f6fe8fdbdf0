"""Walks a model part by part: each distinct part is looked at once, and the sum over parts is the whole pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from explorer.assembly.head import LmHead
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.stack import Stack
from explorer.blueprint.plan import StackPlan
from explorer.cost.parts.layers import Layers
from explorer.cost.parts.observation import META, Observations, Step
from explorer.cost.parts.part import Inputs, Role
from explorer.cost.parts.parts import Parts
from explorer.cost.parts.relatives import Relatives
from explorer.cost.parts.subject import Subject
from explorer.cost.parts.tape import Tape


def walk(subject: Subject, step: Step, observations: Observations) -> Tape:
    """One pass of the subject, in training with everything that runs backward.

    A block alone stands between enter and leave, as in a model of which it is the only layer.

    Raises: PluginError where a component breaks what its kind promises; whatever its forward raises.
    """
    last = {(stack.name, name): layer for stack in subject.plan.stacks for layer, name in enumerate(stack.layers)}
    return observations.sparingly(last, partial(_walked, subject, step, observations))


def _walked(subject: Subject, step: Step, observations: Observations, relatives: Relatives | None) -> Tape:
    tape = Tape(observations, subject.common, relatives)
    walker = _Walker(subject, step, tape, _fillings(subject, step, observations))
    with torch.set_grad_enabled(step.train):
        out = walker.model(subject.module) if isinstance(subject.module, Model) else walker.block(subject.module)
    if step.train:
        tape.backward(out)
    return tape


def _fillings(subject: Subject, step: Step, observations: Observations) -> dict[Role, Inputs]:
    """With what the caches were filled, where that cannot be told from the step: layers that share hand it on."""
    held = step.held
    if held is None or not (held.tokens or held.source) or not subject.hands_on:
        return {}
    before = Step(step.batch, max(held.tokens, 1), held.source, held=replace(held, tokens=0, source=None))
    return {entry.part.role: entry.observation.inputs for entry in walk(subject, before, observations).entries}


@dataclass
class _Walker:
    subject: Subject
    step: Step
    tape: Tape
    fillings: Mapping[Role, Inputs]

    def model(self, model: Model) -> Any:
        """What the model, or in training the loss, returns; in the order of `Model.forward`."""
        plan, step = self.subject.plan, self.step
        stack = self._layers(model.stack, plan.stack, step)
        x = self._embed(stack, model)
        context = None
        if model.encoder is not None and step.source is not None and plan.encoder is not None:
            encoder = self._layers(model.encoder, plan.encoder, replace(step, tokens=step.source, held=None))
            context = encoder.through(self._embed(encoder, model))
        stack.context = self._context(model.stack, context)
        out = stack.through(x)
        return out if model.head is None else self._head(model, model.head, out)

    def block(self, module: BlockModule) -> Any:
        """What leaves the block."""
        step, of = self.step, self.subject.of
        assert of is not None, "a block has a name"
        layers = self._layers(module.stack, of.stack, step)
        layers.context = self._context(module.stack, None if step.source is None else self._vectors(step.source))
        state = layers.enter(self._vectors(step.tokens))
        return layers.leave(layers.layer(module.block, of.stack.blocks[of.name], 0, state))

    def _layers(self, stack: Stack, plan: StackPlan, step: Step) -> Layers:
        ids = None if self.subject.plan.vocab is None else self._token_ids(step.tokens)
        return Layers(stack, plan, self.tape, step, ids, self.fillings)

    def _embed(self, layers: Layers, model: Model) -> Tensor:
        given = self._vectors(layers.step.tokens) if layers.ids is None else layers.ids
        return layers.embed(given, model.embedding)

    def _head(self, model: Model, head: nn.Module, h: Tensor) -> Any:
        parts, stack = Parts(self.tape.observations.kind), self.subject.plan.stack.name
        out = self.tape.call(parts.head(Role(stack, "head"), head, model.embedding), h, self.step)
        if not self.step.train or not isinstance(head, LmHead):
            return out
        given = {"logits": out, "targets": self._token_ids(self.step.tokens)}
        return self.tape.call(parts.loss(Role(stack, "loss")), given, self.step)

    def _context(self, stack: Stack, context: Tensor | None) -> Tensor | None:
        """What cross-attention reads: the source, or where the cache holds it an empty one, (B, 0, dim)."""
        if not stack.intake.cross:
            return None
        if self.step.held is not None and self.step.held.source is not None:
            return self._vectors(self.step.tokens)[:, :0]
        return context

    def _token_ids(self, tokens: int) -> Tensor:
        return torch.empty((self.step.batch, tokens), dtype=torch.int64, device=META)

    def _vectors(self, tokens: int) -> Tensor:
        shape = (self.step.batch, tokens, self.subject.plan.dim)
        return torch.empty(shape, dtype=self.subject.dtype, device=META, requires_grad=self.step.train)
