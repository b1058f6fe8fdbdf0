"""What a pass keeps for its backward, summed over its parts, with and without recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from explorer.cost.memory.saved import Kept, Saved

Recompute = Literal["none", "selective", "full"]
Place = int | None
"""A storage between two parts; None: a weight, which never counts."""


@dataclass
class _Layer:
    """What backward of one layer needs: bytes of private storages, and storages between its parts."""

    private: int = 0
    between: set[int] = field(default_factory=set)


@dataclass
class Activations:
    """Adds up parts in the order of a pass: their private storages, and each storage between them once.

    recompute: what the layers do. none: everything that autograd saves is kept. full: a layer keeps what comes into it
    and is run again in backward. selective: it also keeps what products and fused attention gave (`keeps_output`), and
    runs the rest again. What lies outside of layers is kept in any case.
    """

    recompute: Recompute = "none"
    _private: int = 0
    _sizes: list[int] = field(default_factory=list)  # of the storages between parts
    _kept: set[int] = field(default_factory=set)
    _layers: list[_Layer] = field(default_factory=list)
    _open: _Layer | None = None

    @property
    def nbytes(self) -> int:
        """Bytes kept from forward to backward."""
        return self._private + self._bytes(self._kept)

    @property
    def recomputed(self) -> int:
        """The most bytes that a layer which is run again makes anew, and keeps until its own backward is done."""
        return max((layer.private + self._bytes(layer.between - self._kept) for layer in self._layers), default=0)

    def storage(self, nbytes: int) -> int:
        """The place of a storage that no part made: a model's input."""
        self._sizes.append(nbytes)
        return len(self._sizes) - 1

    @contextmanager
    def layer(self, inputs: Sequence[Place]) -> Iterator[None]:
        """Parts added inside are of one layer. inputs: every storage that comes into it."""
        if self.recompute == "none":
            yield
            return
        self._kept.update(place for place in inputs if place is not None)
        self._open = _Layer()
        self._layers.append(self._open)
        yield
        self._open = None

    def add(self, saved: Saved, inputs: Sequence[Place]) -> list[Place]:
        """One part. inputs: the places of the storages of its tensors; returns those of the tensors it gave."""
        places = dict(zip(saved.inputs, inputs, strict=True))
        for at, crossing in enumerate(saved.crossings):
            if at not in places:
                places[at] = self.storage(crossing.nbytes)
        needed = {place for at, place in places.items() if place is not None and saved.crossings[at].saved}
        if self._open is None:
            self._private += saved.private.saved
            self._kept |= needed
        else:
            made = {place for at, place in places.items() if place is not None and saved.crossings[at].product}
            self._add_to(self._open, saved.private, needed, made)
        return [None if at is None else places[at] for at in saved.outputs]

    def _add_to(self, layer: _Layer, private: Kept, needed: set[int], made: set[int]) -> None:
        layer.between |= needed
        if self.recompute == "full":
            layer.private += private.saved
            return
        self._private += private.products
        self._kept |= made
        layer.private += private.saved - private.both

    def _bytes(self, places: set[int]) -> int:
        return sum(self._sizes[place] for place in places)
