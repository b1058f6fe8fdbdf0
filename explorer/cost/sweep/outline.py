"""What a flow says of memory, whatever stands at its places: what is held beside calls, and which share storages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby

from explorer.cost.memory.activations import Recompute
from explorer.cost.memory.between import Between, last_reads, outside, waiting
from explorer.cost.memory.needs import held_bytes, last_layers, lies_in_evaluation
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.tape import Entry
from explorer.cost.sweep.flow import OUTSIDE, Asked, Flow, Group, group_of
from explorer.cost.sweep.loads import Flags, Key, Load, Loads, outside_key

Block = tuple[str, str]


@dataclass(frozen=True)
class User:
    """A call that may make autograd keep a storage. side: of `Flags`; slot: which of them."""

    group: Group
    key: Key
    side: str
    slot: int

    def keeps(self, flags: Mapping[Group, Sequence[tuple[Key, Flags]]]) -> bool:
        mine = next((flags for key, flags in flags[self.group] if key == self.key), Flags())
        row: tuple[bool, ...] = getattr(mine, self.side)
        return self.slot < len(row) and row[self.slot]


Users = frozenset[User]


@dataclass(frozen=True)
class Kind:
    """Storages that count alike: where one of `users` (None: in any case) keeps them, and none of `unless` does."""

    users: Users | None
    unless: Users = frozenset()

    @property
    def groups(self) -> frozenset[Group]:
        return frozenset(user.group for user in (*(self.users or ()), *self.unless))

    def counts(self, flags: Mapping[Group, Sequence[tuple[Key, Flags]]]) -> bool:
        kept = self.users is None or any(user.keeps(flags) for user in self.users)
        return kept and not any(user.keeps(flags) for user in self.unless)


Storages = tuple[tuple[Kind, int], ...]
"""Bytes of the storages of each kind."""


@dataclass(frozen=True)
class Calls:
    """A group's calls of one kind. held, waiting: the most bytes beside one of them. lies: see `Footprint`.

    held is None for the loss, which is not there in evaluation; lies where nothing else reads what the calls give.
    """

    key: Key
    times: int
    held: int | None
    waiting: int
    lies: Lies | None


@dataclass(frozen=True)
class Again:
    """One layer that is run again in backward. private: of residuals; calls: how often each kind of call is made."""

    private: int
    calls: tuple[tuple[Group, Key, int], ...]
    storages: Storages


@dataclass(frozen=True)
class Outline:
    """One scope of a flow: the whole pass, or the last layer of a block.

    private, forward, backward: of residuals. layers: those that are run again, each that differs from others once.
    """

    forward: int
    backward: int
    private: int
    storages: Storages
    groups: Mapping[Group, tuple[Calls, ...]]
    layers: tuple[Again, ...] = ()


class Outlines:
    """The outlines of one flow. recompute: None outside of training.

    Raises: NotAlike, CannotRun.
    """

    def __init__(self, flow: Flow, loads: Loads, recompute: Recompute | None) -> None:
        self.entries = flow.entries
        self.loads = loads
        self.recompute = recompute
        self.owners = [group_of(entry.part.role) for entry in flow.entries]
        self.keys = list(map(partial(_key, _orders(flow)), flow.entries, self.owners))
        self.own = {at: loads.entry(entry) for at, entry in enumerate(flow.entries) if self.owners[at] is None}
        self.evaluation = Between(flow.entries, partial(lies_in_evaluation, loads.footprints))
        self.training = Between(flow.entries, lambda entry: entry.observation.lies)
        self.last = last_reads(flow.entries)

    def scopes(self) -> dict[Block | None, Outline]:
        """Of the whole pass (None), and of the last layer of each block."""
        whole = None, range(len(self.entries))
        return {block: self._outline(scope) for block, scope in (whole, *last_layers(self.entries).items())}

    def _outline(self, scope: range) -> Outline:
        held = held_bytes(self.evaluation, scope)
        wait = dict(zip(scope, waiting(self.entries, scope, self.last), strict=True))
        own = [at for at in scope if self.owners[at] is None]
        forward = max((held[at] + self.own[at].forward for at in own if at in held), default=0)
        backward = max((wait[at] + self.own[at].backward for at in own), default=0)
        groups = self._groups(scope, held, wait)
        if self.recompute is None:
            return Outline(forward, 0, 0, (), groups)
        kept = _Storages(self, scope)
        return Outline(forward, backward, kept.private(), kept.kept(), groups, kept.again())

    def _groups(self, scope: range, held: Mapping[int, int], wait: Mapping[int, int]) -> dict[Group, tuple[Calls, ...]]:
        found: dict[Group, dict[Key, Calls]] = {}
        for at in scope:
            group, key = self.owners[at], self.keys[at]
            if group is None:
                continue
            of, beside = found.setdefault(group, {}), held.get(at)
            one = of.get(key) or Calls(key, 0, beside, 0, self._lies(at))
            most = None if one.held is None or beside is None else max(one.held, beside)
            of[key] = Calls(key, one.times + 1, most, max(one.waiting, wait[at]), one.lies)
        return {group: tuple(of.values()) for group, of in found.items()}

    def _lies(self, at: int) -> Lies | None:
        entry = self.entries[at]
        return None if entry.part.role.name in ("head", "loss") else lies_in_evaluation(self.loads.footprints, entry)


class _Storages:
    """What a scope keeps in training, of the storages between its parts."""

    def __init__(self, outlines: Outlines, scope: range) -> None:
        self.of = outlines
        self.scope = scope
        self.again_run = outlines.recompute != "none"
        self.layers = [
            list(places)
            for layer, places in groupby(scope, lambda at: _layer(outlines.entries[at]))
            if layer is not None and self.again_run
        ]
        inside = {at for layer in self.layers for at in layer}
        self.outside = [at for at in scope if at not in inside]
        between = outlines.training
        self.always = {
            place for layer in self.layers for place in between.places(outside([outlines.entries[at] for at in layer]))
        }

    def private(self) -> int:
        """Of residuals, kept until backward."""
        total = sum(self.of.own[at].private.saved for at in self.outside if at in self.of.own)
        if self.of.recompute == "selective":
            total += sum(self.of.own[at].private.products for layer in self.layers for at in layer if at in self.of.own)
        return total

    @cached_property
    def keepers(self) -> dict[int, Users | None]:
        """For each storage that may be kept until backward the calls that decide it; None: it is in any case."""
        found = _Users(self.of)
        for at in self.outside:
            found.add(at, "came", "went")
        if self.of.recompute == "selective":
            for layer in self.layers:
                for at in layer:
                    found.add(at, "products")
        return {**found.users, **dict.fromkeys(self.always)}

    def kept(self) -> Storages:
        """Kept until backward."""
        found: Counter[Kind] = Counter()
        for place, users in self.keepers.items():
            if users is None or users:
                found[Kind(users)] += self.of.training.sizes[place]
        return tuple(found.items())

    def again(self) -> tuple[Again, ...]:
        """What each layer makes again."""
        return tuple(dict.fromkeys(map(self._again, self.layers)))

    def _again(self, layer: Sequence[int]) -> Again:
        here, storages = _Users(self.of), Counter[Kind]()
        for at in layer:
            here.add(at, "came", "went")
        for place, users in here.users.items():
            unless = self.keepers.get(place, frozenset())
            if unless is not None and (users is None or users):
                storages[Kind(users, unless)] += self.of.training.sizes[place]
        calls = Counter((self.of.owners[at], self.of.keys[at]) for at in layer)
        of_groups = tuple((group, key, times) for (group, key), times in calls.items() if group is not None)
        private = sum(made_again(self.of.own[at], self.of.recompute) for at in layer if at in self.of.own)
        return Again(private, of_groups, tuple(storages.items()))


class _Users:
    """Collects for each storage the calls that may keep it; None: a residual keeps it in any case."""

    def __init__(self, outlines: Outlines) -> None:
        self.of = outlines
        self.users: dict[int, Users | None] = {}

    def add(self, at: int, *sides: str) -> None:
        """What one call may keep. sides: of `Flags`."""
        for side in sides:
            places = self.of.training.came[at] if side == "came" else self.of.training.went[at]
            for slot, place in enumerate(places):
                if place is not None:
                    self._add(at, side, slot, place)

    def _add(self, at: int, side: str, slot: int, place: int) -> None:
        group, users = self.of.owners[at], self.users.setdefault(place, frozenset())
        if group is None:
            keeps: bool = getattr(self.of.own[at].flags, side)[slot]
            self.users[place] = None if keeps else users
        elif users is not None and not (group == OUTSIDE and _hidden(self.of.entries[at], side)):
            self.users[place] = users | {User(group, self.of.keys[at], side, slot)}


def made_again(load: Load, recompute: Recompute | None) -> int:
    """Private bytes of a call of a layer that is run again: without what is kept of it anyway."""
    return load.private.saved - (load.private.both if recompute == "selective" else 0)


def _hidden(entry: Entry, side: str) -> bool:
    """Whether no other component sees a storage: what the head gives, and the loss reads."""
    return entry.part.role.name == "loss" or (entry.part.role.name == "head" and side != "came")


def _layer(entry: Entry) -> tuple[str, int] | None:
    role = entry.part.role
    return None if role.layer is None else (role.stack, role.layer)


def _orders(flow: Flow) -> dict[Group, dict[Asked, int]]:
    return {group: {asked: at for at, asked in enumerate(calls.places)} for group, calls in flow.groups.items()}


def _key(orders: Mapping[Group, Mapping[Asked, int]], entry: Entry, group: Group | None) -> Key:
    if group is None:
        return None
    return outside_key(entry) if group == OUTSIDE else orders[group][Asked.of(entry)]
