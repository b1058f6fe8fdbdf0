"""What stands before and behind the stacks, in a flow: the embedding of each stack, the head, the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from explorer.assembly.head import LmHead
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.part import Role
from explorer.cost.parts.parts import Parts
from explorer.cost.parts.tape import Entry, Tape
from explorer.cost.parts.trees import Like, put_together
from explorer.cost.sweep.cells import OutsideCell
from explorer.cost.sweep.flow import OUTSIDE, Answer, Flow
from explorer.cost.sweep.terms import Differs, Look, Term, V


def outside_term(look: Look[V], flow: Flow, cell: OutsideCell | None) -> Term[V]:
    """What embedding and head cost in a flow, gradients of a table that several parts read included.

    Raises: Differs.
    """
    total = look.nothing
    if cell is None or flow.block is not None:
        return Term(total, total)
    entries = outside_calls(look.observations, flow, cell)
    if look.outside is not None:
        return Term(look.outside(entries, cell), total)
    for entry in entries:
        total = total + look.call(entry, flow.given)
        for join in entry.weight_joins:
            total = total + look.join(join)
    return Term(total, look.nothing)


def outside_calls(observations: Observations, flow: Flow, cell: OutsideCell) -> list[Entry]:
    """The calls of embedding, head and loss, with the gradients that the flow brings.

    Raises: Differs where the stacks, or what is before the head, would get something else.
    """
    parts = Parts(observations.kind)
    common = {id(p): p for module in cell.modules for p in module.parameters()}
    tape, seeds, outs = Tape(observations, common), dict[int, Like](), list[Tensor]()
    arriving: Tensor | None = None
    for entry in flow.outside:
        role, given = entry.part.role, put_together(*_fresh(entry))
        if role.name == "embed":
            stack = next(s for s, of in zip(cell.stacks, flow.plan.stacks, strict=True) if of.name == role.stack)
            held = entry.observation.step.held
            part = parts.embed(role, stack, cell.embedding, 0 if held is None else held.tokens)
            x = tape.call(part, given, entry.observation.step)
            _expect(tape.entries[-1], entry, cell)
            outs += _noted(seeds, x, entry)
        elif role.name == "head" and cell.head is not None:
            arriving = given
            out = tape.call(parts.head(role, cell.head, cell.embedding), given, entry.observation.step)
            if flow.step.train and isinstance(cell.head, LmHead):
                loss = parts.loss(Role(role.stack, "loss"))
                targets = torch.empty(given.shape[:2], dtype=torch.int64, device="meta")
                out = tape.call(loss, {"logits": out, "targets": targets}, entry.observation.step)
            outs.append(out)
    if flow.step.train:
        arrived = tape.backward(outs, seeds)
        _expect_gradient(flow, cell, None if arriving is None else arrived.get(id(arriving)))
    return tape.entries


def _fresh(entry: Entry) -> tuple[Any, list[Tensor]]:
    tree, likes = entry.observation.inputs
    return tree, [like.make() for like in likes]


def _noted(seeds: dict[int, Like], x: Tensor, entry: Entry) -> list[Tensor]:
    """The embedding as something that a gradient arrives at, where one does."""
    grad = entry.grads[0] if entry.grads else None
    if grad is None:
        return []
    seeds[id(x)] = grad
    return [x]


def _expect(made: Entry, entry: Entry, cell: OutsideCell) -> None:
    answer = Answer.of(made.observation, None)
    if answer != Answer.of(entry.observation, None):
        raise Differs(OUTSIDE, cell.key, answer)


def _expect_gradient(flow: Flow, cell: OutsideCell, arrived: Like | None) -> None:
    """The gradient that the head gives back must be the one that the flow went on with."""
    head = next((entry for entry in flow.outside if entry.part.role.name == "head"), None)
    if head is None:
        return
    expected = None if head.grads is None else head.observation.backward(head.grads).grads[0]
    if arrived != expected:
        raise Differs(OUTSIDE, cell.key, arrived)
