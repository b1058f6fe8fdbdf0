"""A state dict as one family's names make sense of it, for one model: nothing is read but shapes and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from explorer.assembly.head import NoHead
from explorer.assembly.model import BlockModule, Model
from explorer.huggingface.weights.families.family import ENDINGS, Family, without_prefix
from explorer.huggingface.weights.leftovers import harmless
from explorer.huggingface.weights.report import Mismatch, Missing, Report
from explorer.huggingface.weights.rules import Made, Place, Tensors, rule

_TABLE = "embedding.table.weight"
Equal = Callable[[str, str], bool]


class Ours:
    """What a state dict can fill in a model.

    lacking: parts that a model may do without, by the start of their names. alone: it is one block.
    """

    def __init__(self, model: Model | BlockModule) -> None:
        self.tensors: Tensors = model.state_dict(keep_vars=True)
        self.modules: Mapping[str, nn.Module] = dict(model.named_modules())
        self.alone = isinstance(model, BlockModule)
        self.lacking = () if isinstance(model, BlockModule) else _lacking(model)


class Theirs:
    """Their tensors on meta, and their names without what classes and wrappers put before them."""

    def __init__(self, shapes: Tensors) -> None:
        self.shapes = shapes
        self.short = {written: without_prefix(written) for written in shapes}


@dataclass(frozen=True)
class Renamed(Mapping[str, Tensor]):
    """Tensors by other names; each is got when asked for."""

    tensors: Tensors
    written: Mapping[str, str]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self.written[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)


@dataclass(frozen=True, eq=False)
class Reading:
    """What each of our tensors is made of by a family's names. Names of theirs are said as it does, save in reports."""

    ours: Ours
    theirs: Theirs
    family: Family

    @cached_property
    def written(self) -> Mapping[str, str]:
        """Names to those of the state dict; of two that mean the same the first."""
        named: dict[str, str] = {}
        for written, short in self.theirs.short.items():
            named.setdefault(self.family.renamed(short), written)
        return named

    @cached_property
    def made(self) -> Mapping[str, Made | None]:
        """How each of our tensors is made; None where the family has no name for it."""
        return {name: self._made(name, tensor) for name, tensor in self.ours.tensors.items()}

    @cached_property
    def missing(self) -> Mapping[str, tuple[str, ...]]:
        """Our tensors that cannot be made, with the names that are not there; without, where the family has none."""
        absent = {
            name: () if made is None else tuple(source for source in made.names() if source not in self.written)
            for name, made in self.made.items()
        }
        return {name: sources for name, sources in absent.items() if sources or self.made[name] is None}

    @cached_property
    def mismatched(self) -> Mapping[str, Mismatch]:
        found = {name: self._mismatch(name, made) for name, made in self.made.items() if name not in self.missing}
        return {name: mismatch for name, mismatch in found.items() if mismatch is not None}

    @cached_property
    def fitting(self) -> Mapping[str, Made]:
        """Our tensors that can be made."""
        bad = {**self.missing, **self.mismatched}
        return {name: made for name, made in self.made.items() if made is not None and name not in bad}

    @cached_property
    def copies(self) -> tuple[str, ...]:
        """Names that nothing takes and that say the input table once more."""
        there = self.made.get(_TABLE) is not None and _TABLE not in self.missing
        return tuple(name for name in self.family.copies if there and name in self._left - self.ignored)

    @cached_property
    def ignored(self) -> frozenset[str]:
        of_lacking = [
            name
            for ours, written in self.family.ends.items()
            for after in ENDINGS
            if ours.startswith(self.ours.lacking)
            for name in rule(written).at(self._place(after)).names()
        ]
        known = harmless(self._left, has_head="head." not in self.ours.lacking)
        return frozenset(known | self._left.intersection(of_lacking))

    @property
    def unexpected(self) -> tuple[str, ...]:
        """As they are written."""
        known = {self.written[name] for name in self.written if name not in self._left}
        known |= {self.written[name] for name in (*self.ignored, *self.copies)}
        return tuple(written for written in self.theirs.shapes if written not in known)

    def report(self, equal: Equal) -> Report:
        """equal: whether two tensors, by the names of the state dict, have the same values."""
        untied = [found for name in self.copies if (found := self._untied(name, equal)) is not None]
        ignored = self.ignored.union(self.copies)
        return Report(
            family=self.family.name,
            loaded=tuple(self.fitting),
            missing=tuple(Missing(name, tuple(map(self._looked_for, absent))) for name, absent in self.missing.items()),
            unexpected=self.unexpected,
            shapes=(*self.mismatched.values(), *untied),
            ignored=tuple(written for name, written in self.written.items() if name in ignored),
        )

    def copy(self, state_dict: Tensors) -> None:
        """Fill those of our tensors that can be made, one tensor of theirs at a time."""
        values, shapes = Renamed(state_dict, self.written), self._shapes
        with torch.no_grad():
            for name, made in self.fitting.items():
                made.copy_into(self.ours.tensors[name], values, shapes)

    @cached_property
    def _left(self) -> frozenset[str]:
        """Names that nothing takes."""
        taken = {name for made in self.made.values() if made is not None for name in made.names()}
        return frozenset(self.written.keys() - taken)

    @property
    def _shapes(self) -> Tensors:
        return Renamed(self.theirs.shapes, self.written)

    def _made(self, name: str, tensor: Tensor) -> Made | None:
        found = self.family.find(name, alone=self.ours.alone)
        if found is None:
            return None
        owner = self.ours.modules[name.removesuffix(found.after).rpartition(".")[0]]
        place = Place(found.before, found.after, tensor.shape, owner, self.written.keys(), found.index)
        return found.rule.at(place)

    def _place(self, after: str) -> Place:
        return Place("", after, torch.Size(), nn.Identity(), self.written.keys())

    def _mismatch(self, name: str, made: Made | None) -> Mismatch | None:
        assert made is not None, name
        ours, shapes = self.ours.tensors[name], self._shapes
        reason = next((bad for source in made.names() if (bad := _unreadable(shapes[source], ours))), None)
        reason = reason or _unfitting(made, shapes, ours)
        theirs = {self.written[source]: tuple(shapes[source].shape) for source in made.names()}
        return None if reason is None else Mismatch(name, tuple(ours.shape), theirs, reason)

    def _untied(self, name: str, equal: Equal) -> Mismatch | None:
        table, copy = self.made[_TABLE], self.written[name]
        assert table is not None, "copies are of a table that is there"
        source = self.written[next(table.names())]
        if equal(source, copy):
            return None
        reason = f"the model has this one table, and {copy} has other values than {source}"
        shapes = {written: tuple(self.theirs.shapes[written].shape) for written in (source, copy)}
        return Mismatch(_TABLE, tuple(self.ours.tensors[_TABLE].shape), shapes, reason)

    def _looked_for(self, name: str) -> str:
        """With the prefix that names of this start have in the state dict."""
        return self._prefixes.get(name.partition(".")[0], "") + name

    @cached_property
    def _prefixes(self) -> Mapping[str, str]:
        return {
            short.partition(".")[0]: written[: -len(short)] for written, short in self.theirs.short.items() if short
        }


def _lacking(model: Model) -> tuple[str, ...]:
    headless = model.head is None or isinstance(model.head, NoHead)
    return ("embedding.",) * (model.embedding is None) + ("head.",) * headless


def _unreadable(theirs: Tensor, ours: Tensor) -> str | None:
    """Why these numbers are not weights as they stand: those of a quantised one are, only with a scale beside them."""
    if theirs.is_floating_point() != ours.is_floating_point() or (ours.is_floating_point() and theirs.itemsize < 2):
        return f"{theirs.dtype} are no {ours.dtype} (quantised weights must be dequantised first)"
    return None


def _unfitting(made: Made, shapes: Tensors, ours: Tensor) -> str | None:
    try:
        shape = made.shape(shapes)
    except (RuntimeError, IndexError, ValueError) as error:
        return f"theirs do not fit the layout ({str(error).splitlines()[0]})"
    return None if shape == ours.shape else f"theirs make {tuple(shape)}"
