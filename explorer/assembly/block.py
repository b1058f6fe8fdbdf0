"""One layer of a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from explorer.assembly.sublayer import ParallelSublayers, Sublayer
from explorer.assembly.wiring import Pass


class Block(nn.Module):
    """The sublayers of one layer in order, each with its norms and its residual, by name (`attention`, ...)."""

    def __init__(self, parts: Mapping[str, Sublayer | ParallelSublayers]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, state: Any, run: Pass) -> Any:
        for part in self.children():
            state = part(state, run)
        return state

    def parts(self) -> Iterator[Sublayer | ParallelSublayers]:
        """The residual sites of the layer."""
        for part in self.children():
            assert isinstance(part, Sublayer | ParallelSublayers), part
            yield part
