"""What a pass, or one of its layers alone, needs in memory: the sum of its parts and of the storages between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from explorer.cost.memory.activations import Activations, Recompute
from explorer.cost.memory.between import Between, last_reads, outside, waiting
from explorer.cost.memory.footprint import Footprint, Footprints
from explorer.cost.memory.holding import beside
from explorer.cost.memory.memory import Need
from explorer.cost.parts.failures import CannotRun
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.tape import Entry


@dataclass(frozen=True)
class Needed:
    """What a pass needs; layers: the last one of each block, by stack and block. failure: why that is not known."""

    whole: Need | None = None
    layers: Mapping[tuple[str, str], Need] = field(default_factory=dict)
    failure: str | None = None


def needed(entries: Sequence[Entry], footprints: Footprints, recompute: Recompute | None, *, whole: bool) -> Needed:
    """What a pass of these parts needs, and where `whole` is set all of them together.

    recompute: None outside of training. What can be counted may not run on tensors without values: that is a failure.
    """
    try:
        needs = _Needs(entries, footprints, recompute)
        layers = {block: needs.of(layer) for block, layer in last_layers(entries).items()}
        return Needed(needs.of(range(len(entries))) if whole else None, layers)
    except CannotRun as error:
        return Needed(failure=f"it cannot be run on tensors without values: {error}")


def last_layers(entries: Sequence[Entry]) -> dict[tuple[str, str], range]:
    """The places of the parts of each block's last layer, by stack and block."""
    found: dict[tuple[str, str], range] = {}
    start = 0
    for _, parts in layers_of(entries):
        role, end = parts[0].part.role, start + len(parts)
        if role.layer is not None:
            found[role.stack, role.block] = range(start, end)
        start = end
    return found


class _Needs:
    """One pass. entries: its parts, in order. recompute: None outside of training.

    Raises: CannotRun.
    """

    def __init__(self, entries: Sequence[Entry], footprints: Footprints, recompute: Recompute | None) -> None:
        self.entries = entries
        self.footprints = footprints
        self.recompute = recompute
        self.between = Between(entries, partial(lies_in_evaluation, footprints))
        self.last = last_reads(entries)

    def of(self, scope: range) -> Need:
        """What some parts in a row need, given by their places: the whole pass, or one of its layers alone.

        What comes into a layer from elsewhere is there all the time, as are the gradients of it.
        """
        cache = sum(self.entries[place].observation.cache_bytes for place in scope)
        forward = self._forward(scope)
        if self.recompute is None:
            return Need(forward, cache)
        kept = _kept([self.entries[place] for place in scope], self.footprints, self.recompute)
        return Need(forward, cache, kept.nbytes, kept.recomputed, self._backward(scope))

    def _forward(self, scope: range) -> int:
        held = held_bytes(self.between, scope)
        return max((nbytes + self._of(place).forward for place, nbytes in held.items()), default=0)

    def _backward(self, scope: range) -> int:
        wait = zip(scope, waiting(self.entries, scope, self.last), strict=True)
        return max((nbytes + self._of(place).backward for place, nbytes in wait), default=0)

    def _of(self, place: int) -> Footprint:
        return self.footprints.of(self.entries[place])


def lies_in_evaluation(footprints: Footprints, entry: Entry) -> Lies:
    """Where the new tensors of a part lie in evaluation mode, where dropout hands on what it gets."""
    if entry.part.role.name == "dropout":
        return Lies((0,) * len(entry.outputs), ())
    return footprints.of(entry).lies


def held_bytes(between: Between, scope: range) -> dict[int, int]:
    """Bytes that are held while each part of a scope runs in evaluation, its inputs included, by its place.

    The loss and dropout are not there in evaluation.
    """
    places = [place for place in scope if between.entries[place].part.role.name != "loss"]
    entries = [between.entries[place] for place in places]
    always = between.places(outside(entries))
    found = {}
    for place, entry, held in zip(places, entries, beside(entries), strict=True):
        if entry.part.role.name != "dropout":
            found[place] = between.nbytes(always | between.places(held) | between.places(entry.inputs))
    return found


def layers_of(entries: Sequence[Entry]) -> Iterator[tuple[bool, list[Entry]]]:
    """Parts in a row that are of one layer, and those outside of layers: whether they are of one, and the parts."""
    for key, group in groupby(entries, lambda entry: (entry.part.role.stack, entry.part.role.layer)):
        yield key[1] is not None, list(group)


def _kept(entries: Sequence[Entry], footprints: Footprints, recompute: Recompute) -> Activations:
    """What parts keep from forward to backward."""
    activations = Activations(recompute)
    places: dict[int, int | None] = {}
    for tensor in outside(entries):
        places[id(tensor)] = activations.storage(tensor.untyped_storage().nbytes())

    def add(entry: Entry) -> None:
        came = [places[id(tensor)] for tensor in entry.inputs]
        went = activations.add(footprints.of(entry).kept, came)
        for tensor, place in zip(entry.results, went, strict=True):
            places.setdefault(id(tensor), place)

    for is_layer, parts in layers_of(entries):
        inputs = [places[id(tensor)] for tensor in outside(parts)]
        with activations.layer(inputs) if is_layer else nullcontext():
            for entry in parts:
                add(entry)
    return activations
