"""Modules in training or evaluation mode for a while: modules that plans share are in whichever the last pass set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from explorer.cost.parts.part import Part


@contextmanager
def in_mode(part: Part, train: bool) -> Iterator[None]:
    """Inside, all modules that a part's call runs are in that mode; afterwards each is as it was."""
    every = [*part.switched, *(module for top in part.modules for module in top.modules())]
    before = [module.training for module in every]
    try:
        for top in part.modules:
            top.train(train)
        for module in part.switched:
            module.training = train  # alone: what it holds may be a whole stack
        yield
    finally:
        for module, mode in zip(every, before, strict=True):
            module.training = mode
