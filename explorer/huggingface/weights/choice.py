"""Whose names a state dict has: told from the kinds of names, not from what a config calls the model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from explorer.huggingface.weights.families.family import Family
from explorer.huggingface.weights.rules import Place

_NUMBER = re.compile(r"\.\d+(?=\.|$)")


def family_of(families: Sequence[Family], ours: Iterable[str], theirs: Iterable[str], *, alone: bool) -> Family:
    """The first of those whose tables leave the fewest kinds of names over: 50,000 names of a model are some 40 kinds.

    ours, theirs: names, theirs without prefixes. alone: of one block and of one layer.
    """
    our_kinds, their_kinds = _kinds(ours), _kinds(theirs)
    return min(families, key=lambda family: _left_over(family, our_kinds, their_kinds, alone=alone))


def _kinds(names: Iterable[str]) -> list[str]:
    """One name of each kind: those that differ in their numbers only are alike."""
    return list({_general(name): name for name in names}.values())


def _left_over(family: Family, ours: Iterable[str], theirs: Iterable[str], *, alone: bool) -> int:
    there = {_general(family.renamed(name)) for name in theirs}
    taken: set[str] = set()
    missing = 0
    for name in ours:
        found = family.find(name, alone=alone)
        if found is None:
            missing += 1
            continue
        place = Place(_general(found.before), found.after, torch.Size([1]), nn.Identity(), there)
        names = {_general(source) for source in found.rule.at(place).names()}
        missing += not names <= there
        taken |= names
    return missing + len(there - taken)


def _general(name: str) -> str:
    return _NUMBER.sub(".*", name)
