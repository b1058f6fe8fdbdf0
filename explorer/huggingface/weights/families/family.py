"""What a family of models calls its tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from explorer.huggingface.weights.rules import Names, Rule, rule

ENDINGS = ("", ".weight", ".bias")

# What classes with a head, wrappers and models of several modalities put before the names of a text model.
_PREFIX = re.compile(r"^((module|_orig_mod|base_model|language_model|model|transformer|gpt_neox|bert)\.)+")
# A parallel layer holds the same parts as a sequential one, at other places.
_PARALLEL = (
    (re.compile(r"^parallel\.sublayers\.(\w+)\."), r"\1.branch."),
    (re.compile(r"^parallel\.norms\.(\w+)\."), r"\1.norm."),
)
_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


@dataclass(frozen=True)
class Rename:
    """A name that older files, or their authors, use instead."""

    pattern: str
    name: str


@dataclass(frozen=True)
class Found:
    """The rule for one of our tensors: what stands around its names, and the place of our module in its list."""

    rule: Rule
    before: str
    after: str
    index: int


@dataclass(frozen=True)
class Layers:
    """theirs: their list of layers. names: in each, whatever its kind; ours are said as in a sequential layer."""

    theirs: str
    names: Names


@dataclass(frozen=True)
class Family:
    """Our names to theirs; a name is a tensor's, or a module's with its weight and bias; `*` is any number.

    ends: what a model has once. layers: by the names of our lists of layers.
    renames: to the names of these tables. copies: of the input table, which models with a tied head may keep.
    """

    name: str
    ends: Names
    layers: Mapping[str, Layers]
    renames: tuple[Rename, ...] = ()
    copies: tuple[str, ...] = ("lm_head.weight",)

    def renamed(self, name: str) -> str:
        """A name without prefix as these tables say it."""
        for old in self.renames:
            name = re.sub(old.pattern, old.name, name)
        return name

    def find(self, ours: str, *, alone: bool) -> Found | None:
        """The rule for a tensor of ours, if there is one. alone: theirs is a single layer."""
        for name, layers in self.layers.items():
            inside = re.match(rf"{re.escape(name)}\.(\d+)\.", ours)
            if inside is not None:
                before = "" if alone else f"{layers.theirs}.{inside[1]}."
                return _found(layers.names, ours[inside.end() :], before)
        return _found(self.ends, ours, "")


def without_prefix(written: str) -> str:
    return _PREFIX.sub("", written)


def decoder(theirs: str, names: Names) -> Mapping[str, Layers]:
    """The only stack of a model."""
    return {"stack.layers": Layers(theirs, names)}


def _found(names: Names, ours: str, before: str) -> Found | None:
    for place, sequential in _PARALLEL:
        ours = place.sub(sequential, ours)
    numbers = _NUMBER.findall(ours)
    general = _NUMBER.sub(".*", ours)
    for ending in ENDINGS:
        stem = general.removesuffix(ending)
        if general.endswith(ending) and stem in names:
            return Found(rule(names[stem]), before, ending, int(numbers[0]) if numbers else 0)
    return None
