"""What components keep and take when they are called as a flow asks: the numbers that memory is summed from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from explorer.cost.memory.between import Between
from explorer.cost.memory.footprint import Footprint, Footprints
from explorer.cost.memory.saved import Crossing, Kept
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.observation import Observations
from explorer.cost.parts.tape import Entry
from explorer.cost.sweep.cells import BranchCell, NormCell, OutsideCell
from explorer.cost.sweep.flow import Ask, Flow, Pattern
from explorer.cost.sweep.outside import outside_calls
from explorer.cost.sweep.terms import call

Key = Hashable
"""A kind of call of one group: its place among those of its pattern; the role and the stack of embedding and head."""


@dataclass(frozen=True)
class Flags:
    """Which storages around a call it makes autograd keep: those of its inputs, and of its new tensors, in order.

    products: of which of its new tensors selective recomputation keeps the storage.
    """

    came: tuple[bool, ...] = ()
    went: tuple[bool, ...] = ()
    products: tuple[bool, ...] = ()


_NONE = Kept()


@dataclass(frozen=True)
class Load:
    """One call, in bytes: see `Footprint`. private: of the storages that stay inside it."""

    forward: int
    lies: Lies
    backward: int = 0
    private: Kept = _NONE
    flags: Flags = field(default_factory=Flags)

    @staticmethod
    def of(entry: Entry, footprint: Footprint) -> Load:
        if footprint.saved is None:
            return Load(footprint.forward, footprint.lies)
        saved, places = footprint.saved, entry.observation.places
        came = tuple(saved.crossings[at].saved for at in saved.inputs)
        results = (saved.outputs[places.index(len(came) + new)] for new in range(len(entry.observation.fresh)))
        went = [Crossing(0, False) if at is None else saved.crossings[at] for at in results]
        flags = Flags(came, tuple(one.saved for one in went), tuple(one.product for one in went))
        return Load(footprint.forward, footprint.lies, footprint.backward, saved.private, flags)


@dataclass(frozen=True)
class Share:
    """The calls of one component in a flow. inside: bytes kept between calls that no other component sees.

    failure: why they are not known, or no sum tells them.
    """

    loads: tuple[tuple[Key, Load], ...] = ()
    inside: int = 0
    failure: str | None = None

    @property
    def flags(self) -> tuple[tuple[Key, Flags], ...]:
        return tuple((key, load.flags) for key, load in self.loads)


NOTHING = Share()


@dataclass(frozen=True)
class Loads:
    """Looks at components."""

    observations: Observations
    footprints: Footprints

    def entry(self, entry: Entry) -> Load:
        """One call. Raises: NotAlike, CannotRun."""
        footprint = self.footprints.of(entry)
        if not footprint.as_on_meta:
            raise NotAlike(f"{entry.part.role.text}: its results lie elsewhere on a CPU than on meta")
        return Load.of(entry, footprint)

    def group(self, pattern: Pattern, cell: BranchCell | NormCell) -> Share:
        """All kinds of calls of a component. Raises: NotAlike, CannotRun, whatever its forward raises on meta."""
        return Share(tuple((key, self._ask(pattern, cell, ask)) for key, ask in enumerate(pattern.asks)))

    def _ask(self, pattern: Pattern, cell: BranchCell | NormCell, ask: Ask) -> Load:
        if isinstance(cell, NormCell) or "site" not in cell.chosen.picks:
            return self.entry(call(self.observations, pattern, cell, ask.asked))
        loads = {self.entry(call(self.observations, pattern, cell, ask.asked, site)) for site in ask.sites}
        if len(loads) > 1:
            raise NotAlike(f"{pattern.group.sublayer}: what it needs depends on the layer")
        return loads.pop()

    def outside(self, flow: Flow, cell: OutsideCell) -> Share:
        """Embedding, head and loss. Raises: NotAlike, CannotRun, whatever their forwards raise on meta."""
        entries = outside_calls(self.observations, flow, cell)
        loads = [self.entry(entry) for entry in entries]
        keys = (outside_key(entry) for entry in entries)
        return Share(tuple(zip(keys, loads, strict=True)), _inside(entries, loads) if flow.step.train else 0)


class NotAlike(Exception):
    """A component whose memory is no sum over the calls that a flow asks for."""


def outside_key(entry: Entry) -> Key:
    return entry.part.role.name, entry.part.role.stack


def _inside(entries: Sequence[Entry], loads: Sequence[Load]) -> int:
    """Bytes kept of what the head gives, and of the loss."""
    between = Between(entries, lambda entry: entry.observation.lies)
    kept: set[int | None] = set()
    apart: set[int | None] = {None}
    for entry, load, came, went in zip(entries, loads, between.came, between.went, strict=True):
        name, flags = entry.part.role.name, load.flags
        apart.update(came if name in ("embed", "head") else (), went if name == "embed" else ())
        for places, saved in ((came, flags.came), (went, flags.went)):
            kept.update(place for place, keeps in zip(places, saved, strict=True) if keeps)
    return between.nbytes(place for place in kept - apart if place is not None)
