"""Layers that differ in floating-point numbers only, such as a factor by depth: a few of them tell what all do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from explorer.cost.parts.part import Role, family_of

if TYPE_CHECKING:
    from explorer.cost.parts.observation import Observation

Last = Mapping[tuple[str, str], int]
"""The last layer of each block, by stack and block."""


class Unlike(Exception):
    """The last layer does something else than those that told of it: each one must be looked at."""


@dataclass
class Relatives:
    """Parts of one block in one pass. All that a blueprint writes is the same in them; what differs came from a depth.

    Where two layers did the same, those that follow are taken to do it too, up to the last, which is looked at: a
    number that rises or falls with depth cannot have changed anything between two layers that are alike.
    borrowed: keys of parts that were not looked at.
    """

    last: Last
    borrowed: list[Hashable] = field(default_factory=list)
    _looked: dict[Hashable, list[Observation]] = field(default_factory=dict)
    _met: set[int] = field(default_factory=set)

    def known(self, role: Role, key: tuple[Hashable, ...]) -> Observation | None:
        """What relatives of a part did, where that is told by them."""
        if role.layer is None or self._is_last(role):
            return None
        seen = self._looked.get(_family(role, key), [])
        if len(seen) < 2 or not _all_same(seen):
            return None
        self.borrowed.append(key)
        return seen[0]

    def note(self, role: Role, key: tuple[Hashable, ...], seen: Observation) -> None:
        """What a part did. Raises: Unlike, for a last layer."""
        if role.layer is None or id(seen) in self._met:
            return
        self._met.add(id(seen))
        family = self._looked.setdefault(_family(role, key), [])
        family.append(seen)
        if self.borrowed and self._is_last(role) and not _all_same(family):
            raise Unlike(role.text)

    def _is_last(self, role: Role) -> bool:
        return self.last.get((role.stack, role.block)) == role.layer


def _family(role: Role, key: tuple[Hashable, ...]) -> Hashable:
    return replace(role, layer=None), family_of(key[0]), key[1:]


def _all_same(seen: list[Observation]) -> bool:
    return all(seen[0].does_as(other) for other in seen[1:])
