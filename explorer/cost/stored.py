"""Parameters by what decides the bytes that each of them takes: its dtype, and whether it is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import nn


class Stored(NamedTuple):
    """trained: whether a parameter gets a gradient, and with it a state of the optimizer; a frozen one does not."""

    dtype: torch.dtype
    trained: bool = True


Parameters = Mapping[Stored, int]
"""How many distinct ones there are of each kind."""


def parameters_of(module: nn.Module) -> Counter[Stored]:
    """The distinct parameters of a module; one that it holds twice counts once."""
    found: Counter[Stored] = Counter()
    for parameter in module.parameters():
        found[Stored(parameter.dtype, parameter.requires_grad)] += parameter.numel()
    return found
