"""How many parameters of a model, or of a block, one token uses."""

from __future__ import annotations

import torch
from torch import nn

from explorer.assembly.block import Block
from explorer.assembly.model import Model
from explorer.assembly.position import Position
from explorer.assembly.positions import embeds
from explorer.cost.active import active_parameters
from explorer.cost.failures import understood
from explorer.cost.walk import Run, Step, Subject, walk

Uses = tuple[int | None, str | None]  # how many, or None and why that is not known


def active(subject: Subject) -> Uses:
    """Parameters that one token uses, or None and why that is not known.

    Raises: PluginError where a component's code fails.
    """
    with understood(subject) as trouble:
        return _whole(subject) if _layers_share(subject) else _summed(subject)
    return None, trouble.reason


def _summed(subject: Subject) -> Uses:
    """Layer by layer: those that do the same are looked at once, for each has weights of its own."""
    others: list[Run] = []

    def look(run: Run, layer: Block | None) -> Uses:
        if layer is not None:
            return active_parameters(layer, run)
        others.append(run)
        run()
        return 0, None

    pieces = walk(subject, _one_token(subject), look).pieces
    unknown = next((piece.seen[1] for piece in pieces if piece.seen[0] is None), None)
    # Embedding, norms and head may share weights (a tied table): they are looked at together.
    with torch.no_grad():
        rest, reason = active_parameters(subject.module, lambda: [run() for run in others])
    if rest is None or unknown is not None:
        return None, unknown or reason
    layers = sum((piece.seen[0] or 0) * piece.times for piece in pieces)
    return rest + layers + _position_tables(subject), None


def _whole(subject: Subject) -> Uses:
    """All layers in one pass, for weights that several of them use."""
    step = _one_token(subject, merge=False)
    used, reason = active_parameters(subject.module, lambda: walk(subject, step, lambda run, layer: run()))
    return (None, reason) if used is None else (used + _position_tables(subject), None)


def _one_token(subject: Subject, merge: bool = True) -> Step:
    return Step(1, 1, 1 if subject.reads_source else None, merge=merge)


def _layers_share(subject: Subject) -> bool:
    layers = [layer for stack in _stacks(subject) for layer in stack]
    return sum(numel(layer) for layer in layers) > numel(nn.ModuleList(layers))


def _stacks(subject: Subject) -> list[nn.ModuleList]:
    module = subject.module
    stacks = [module.encoder, module.stack] if isinstance(module, Model) else [module.stack]
    return [stack.layers for stack in stacks if stack is not None]


def _position_tables(subject: Subject) -> int:
    """Parameters of positions that act inside attention: tables of the stack, which count whole and once."""
    if not isinstance(subject.module, Model):
        return 0
    stacks = [stack for stack in (subject.module.encoder, subject.module.stack) if stack is not None]
    positions = [p for stack in stacks for p in stack.positions if isinstance(p, Position) and not embeds(type(p))]
    return sum(numel(position) for position in positions)


def numel(module: nn.Module) -> int:
    """Distinct parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())
