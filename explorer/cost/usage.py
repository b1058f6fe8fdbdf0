"""How many parameters of a model, or of a block, one token uses."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from explorer.assembly.model import Model
from explorer.assembly.position import Position
from explorer.assembly.positions import embeds
from explorer.cost.active import active_parameters
from explorer.cost.parts.failures import understood
from explorer.cost.parts.observation import Observations, Step, run
from explorer.cost.parts.subject import Subject, numel
from explorer.cost.parts.tape import Entry
from explorer.cost.parts.walk import walk

Uses = tuple[int | None, str | None]
"""How many, or None and why that is not known."""

_RESIDUAL = frozenset({"read", "write"})
_OUTSIDE = frozenset({"embed", "head"})


@dataclass
class Usages:
    """What one token uses of each component that was looked at."""

    _seen: dict[Hashable, Uses] = field(default_factory=dict)

    def of(self, subject: Subject, observations: Observations) -> Uses:
        """Parameters of a subject that one token uses, or None and why that is not known.

        Raises: PluginError where a component's code fails.
        """
        with understood(subject.label) as trouble:
            step = Step(1, 1, 1 if subject.reads_source else None)
            entries = walk(subject, step, observations).entries
            if subject.entangled:
                return _with_tables(subject, [_together(subject.module, entries)])
            return _with_tables(subject, [self.group(group) for group in groups_of(entries)])
        return None, trouble.reason

    def group(self, entries: Sequence[Entry]) -> Uses:
        """What one token uses in some calls of one component."""
        key = tuple((entry.observation.part.key, entry.observation.inputs) for entry in entries)
        if key not in self._seen:
            self._seen[key] = _together(_owners(entries), entries)
        return self._seen[key]


def groups_of(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Calls of one component, which count together; embedding and head too, for they may share a table."""
    groups: dict[Hashable, list[Entry]] = {}
    entered: list[Entry] = []
    for entry in entries:
        role = entry.part.role
        if role.name == "enter":
            entered.append(entry)
        elif role.name in _RESIDUAL:
            # A state is entered by the residual of the first site.
            groups.setdefault((role.stack, role.layer, role.sublayer), []).extend([*entered, entry])
            entered.clear()
        elif entry.part.modules:
            groups.setdefault("outside" if role.name in _OUTSIDE else role, []).append(entry)
    return list(groups.values())


def _owners(entries: Sequence[Entry]) -> nn.ModuleList:
    """Whose parameters these calls use: a sublayer's own (positions are the stack's), all of embedding and head."""
    inside = entries[0].part.role.name not in _OUTSIDE
    modules = [module for entry in entries for module in (entry.part.modules[:1] if inside else entry.part.modules)]
    return nn.ModuleList({id(module): module for module in modules}.values())


def _together(owner: nn.Module, entries: Sequence[Entry]) -> Uses:
    def all_of_them() -> object:
        # The entry's own part: the one that was observed may be of another layer.
        return [run(entry.part, entry.observation.inputs, entry.observation.step) for entry in entries]

    with torch.no_grad():
        return active_parameters(owner, all_of_them)


def _with_tables(subject: Subject, uses: Sequence[Uses]) -> Uses:
    unknown = next((reason for used, reason in uses if used is None), None)
    if unknown is not None:
        return None, unknown
    return sum(used or 0 for used, _ in uses) + _position_tables(subject), None


def _position_tables(subject: Subject) -> int:
    """Parameters of positions that act inside attention: tables of the stack, which count whole and once."""
    if not isinstance(subject.module, Model):
        return 0
    positions = [p for stack in subject.stacks for p in stack.positions if isinstance(p, Position)]
    return sum(numel(position) for position in positions if not embeds(type(position)))
