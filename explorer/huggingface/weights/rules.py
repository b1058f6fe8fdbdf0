"""How one of our tensors is made of theirs: rules, as tables of names hold them, and what they come to at one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Place:
    """Where a rule is applied: to one of our tensors, with the names that are there.

    before, after: what a rule's names stand between (`layers.3.`, `.weight`). shape, index: of our tensor, and of the
    member it belongs to where our module is a list. owner: the module whose part it is, which knows sizes (`head_dim`).
    number: what a `*` in their names stands for, where a list of theirs is one tensor of ours.
    """

    before: str
    after: str
    shape: torch.Size
    owner: nn.Module
    theirs: Set[str]
    index: int = 0
    number: str = "*"

    def name(self, source: str) -> str:
        return self.before + source.replace("*", self.number) + self.after

    def size(self, name: str) -> int:
        """A number of the owner. Raises: ValueError where it has none of this name."""
        size = vars(self.owner).get(name)
        if not isinstance(size, int):
            raise ValueError(f"needs `{name}`, which the model's {type(self.owner).__name__} does not have")
        return size

    def heads(self, name: str) -> tuple[int, int]:
        """How many heads of which width the owner has. Raises: ValueError where it has none of this name."""
        heads = vars(self.owner).get(name)
        if not isinstance(heads, tuple):
            raise ValueError(f"needs `{name}`, which the model's {type(self.owner).__name__} does not have")
        count, width = heads
        return count, width


Layout = Callable[[Tensor, Place], Tensor]


def as_it_is(weight: Tensor, place: Place) -> Tensor:
    return weight


class Rule(Protocol):
    def at(self, place: Place) -> Made:
        """What the rule comes to at a place."""


class Made(Protocol):
    """One of our tensors, or a part of it, as it will be made."""

    def names(self) -> Iterator[str]:
        """The tensors of theirs that it takes."""

    def shape(self, theirs: Tensors) -> torch.Size:
        """As made of these, on meta. Raises: RuntimeError, IndexError or ValueError where they do not fit a layout."""

    def copy_into(self, ours: Tensor, theirs: Tensors, shapes: Tensors) -> None:
        """Copy it, one tensor of theirs at a time; `shapes` holds them all on meta."""


@dataclass(frozen=True)
class One:
    """One tensor of theirs in our layout."""

    source: str
    layout: Callable[[Tensor], Tensor]

    def names(self) -> Iterator[str]:
        yield self.source

    def shape(self, theirs: Tensors) -> torch.Size:
        return self.layout(theirs[self.source]).shape

    def copy_into(self, ours: Tensor, theirs: Tensors, shapes: Tensors) -> None:
        ours.copy_(self.layout(theirs[self.source]))


@dataclass(frozen=True)
class Several:
    """Parts one behind the other along the first axis, or, stacked, along a new one."""

    parts: tuple[Made, ...]
    stacked: bool

    def names(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.names()

    def shape(self, theirs: Tensors) -> torch.Size:
        shapes = [part.shape(theirs) for part in self.parts]
        inner = {shape if self.stacked else shape[1:] for shape in shapes}
        if len(inner) != 1:
            raise ValueError(f"parts do not fit together: {', '.join(str(tuple(shape)) for shape in shapes[:4])}")
        return torch.Size((len(shapes) if self.stacked else sum(shape[0] for shape in shapes), *inner.pop()))

    def copy_into(self, ours: Tensor, theirs: Tensors, shapes: Tensors) -> None:
        views = ours.unbind() if self.stacked else ours.split([part.shape(shapes)[0] for part in self.parts])
        for part, view in zip(self.parts, views, strict=True):
            part.copy_into(view, theirs, shapes)


@dataclass(frozen=True)
class Take:
    """One of theirs. source: a tensor, or a module, whose weight and bias are then made alike."""

    source: str
    layout: Layout = as_it_is

    def at(self, place: Place) -> One:
        return One(place.name(self.source), lambda weight: self.layout(weight, place))


@dataclass(frozen=True)
class Rows:
    """Projections one below the other, as our fused ones are; stacked: each behind the other on a new axis."""

    parts: tuple[Rule, ...]
    stacked: bool = False

    def at(self, place: Place) -> Several:
        return Several(tuple(part.at(place) for part in self.parts), self.stacked)


@dataclass(frozen=True)
class Each:
    """One behind the other on a new axis, as many as we have: names with a `*` for the number."""

    part: Rule

    def at(self, place: Place) -> Several:
        members = (replace(place, number=str(number)) for number in range(place.shape[0]))
        return Several(tuple(self.part.at(member) for member in members), stacked=True)


@dataclass(frozen=True)
class Either:
    """The first of these that is there; where none is, the one of which most is."""

    choices: tuple[Rule, ...]

    def at(self, place: Place) -> Made:
        best, there = self.choices[0].at(place), -1
        for choice in self.choices:
            made = choice.at(place)
            absent, present = _presence(made, place.theirs)
            if not absent:
                return made
            if present > there:
                best, there = made, present
        return best


Written = str | Rule
Names = Mapping[str, Written]


def rule(written: Written) -> Rule:
    return Take(written) if isinstance(written, str) else written


def rows(*parts: Written) -> Rows:
    return Rows(tuple(map(rule, parts)))


def stacked(*parts: Written) -> Rows:
    return Rows(tuple(map(rule, parts)), stacked=True)


def each(*parts: Written) -> Each:
    """parts: of each member, one below the other."""
    return Each(rows(*parts))


def either(*choices: Written) -> Either:
    return Either(tuple(map(rule, choices)))


def _presence(made: Made, theirs: Set[str]) -> tuple[int, int]:
    """How many of its names are not there, and how many are."""
    there = [name in theirs for name in made.names()]
    return there.count(False), there.count(True)
