"""A part of a pass: what lies between two residual calls, and what stands before, between and behind the layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from explorer.assembly.cache import CacheView
from explorer.cost.parts.trees import Like, Tree

Inputs = tuple[Tree, tuple[Like, ...]]
"""How a tree nests its tensors, and what those are like."""

Call = Callable[[Any, "CacheView | None"], Any]
"""(tree of inputs, view of the cache) -> tree of outputs."""


@dataclass(frozen=True)
class Role:
    """What a part is in a model. stack: "", "encoder" or "decoder". block: "" outside the layers. layer: None there.

    sublayer: "attention", "cross_attention", "feedforward" or "parallel", "" outside. name: "read", "norm", "branch",
    "dropout", "sum", "norm_out", "write", "norm_post"; outside "embed", "enter", "leave", "final_norm", "head", "loss".
    """

    stack: str
    name: str
    block: str = ""
    sublayer: str = ""
    layer: int | None = None

    @property
    def text(self) -> str:
        layer = "" if self.layer is None else str(self.layer)
        return ".".join(part for part in (self.stack, self.block, layer, self.sublayer, self.name) if part)

    @property
    def label(self) -> str:
        """What its rows are called; "" for what stands between parts: its rows are never chained."""
        return "" if self.name in ("dropout", "sum", "loss") else self.text


@dataclass(frozen=True)
class Kind:
    """What modules share that do the same to inputs that are alike; family: see `likeness.family`."""

    number: int
    family: int = field(default=0, compare=False)


def family_of(key: Hashable) -> Hashable:
    """The key of a part with the families of its modules in place of their kinds."""
    if isinstance(key, Kind):
        return "family", key.family
    return tuple(map(family_of, key)) if isinstance(key, tuple) else key


@dataclass(frozen=True)
class Part:
    """One call. key: equal for parts that do the same to inputs that are alike.

    modules: whose parameters it reads. cached: whether it keeps something in a cache: if it `takes_cache`, and there is
    one. check: raises for (inputs, outputs) that break a promise. filling: inputs that filled its cache (None: such as
    it gets now). switched: other modules that do something else in training than in evaluation.
    """

    role: Role
    key: Hashable
    call: Call
    modules: tuple[nn.Module, ...] = ()
    cached: bool = False
    check: Callable[[Any, Any], None] | None = None
    filling: Inputs | None = None
    switched: tuple[nn.Module, ...] = ()
    takes_cache: bool = False

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Its parameters, each once, in an order that parts with an equal key share."""
        found = {id(p): p for module in self.modules for p in module.parameters()}
        return tuple(found.values())

    @property
    def constants(self) -> Iterator[Tensor]:
        """Its parameters and buffers: what it reads besides its inputs and the cache."""
        for module in self.modules:
            yield from module.parameters()
            yield from module.buffers()
