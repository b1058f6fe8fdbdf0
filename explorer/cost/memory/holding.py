"""What Python holds beside each part of a pass while it runs: the locals of the forwards that call it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from explorer.cost.parts.tape import Entry

Held = list[Tensor]
_SUM = ("before", "state", "x", "own", "outputs")
# The locals of `Sublayer.forward`, and of the sum of a parallel layer, when it calls these parts.
_LOCALS = {
    "read": ("before",),
    **dict.fromkeys(("norm", "branch", "dropout", "sum"), _SUM),
    "norm_out": ("before", "state", "x"),
    "write": ("before", "x"),
    "norm_post": ("before", "x", "y"),
}


def beside(entries: Iterable[Entry]) -> Iterator[Held]:
    """For each part of a pass, or of a layer, what is held while it runs, besides its inputs and what came from outside
    of all of them.

    As in evaluation, where dropout hands on what it gets.
    """
    frames = _Frames()
    for entry in entries:
        yield frames.at(entry)
        frames.after(entry)


@dataclass
class _Site:
    """One residual site. name: of the sublayer that it is around.

    before: the state that came in; state: as `read` left it. own: behind a norm of one sublayer alone.
    """

    name: str
    before: Held
    state: Held = field(default_factory=list)
    x: Held = field(default_factory=list)
    own: Held = field(default_factory=list)
    outputs: Held = field(default_factory=list)
    y: Held = field(default_factory=list)

    def after(self, entry: Entry) -> None:
        role, results = entry.part.role, entry.results
        if role.name == "read":
            self.x, self.state = results[:1], results[1:]
        elif role.name == "norm" and role.sublayer == self.name:
            self.x = results
        elif role.name == "norm":
            self.own = results
        elif role.name == "branch":
            self.y = results[:1]
            self.outputs += self.y
        elif role.name == "dropout":
            self.y = self.outputs[-1:] = results
        elif role.name in ("sum", "norm_out"):
            self.y = results


@dataclass
class _Frames:
    """The locals of a model, of the stack that runs, and of its layer.

    embedded: what enters each stack, and of an encoder that has run what came out. shared: by the layers. last: what
    the part before returned. state: behind the last layer. before: the state that came into the layer.
    """

    stack: str | None = None
    embedded: dict[str, Held] = field(default_factory=dict)
    shared: Held = field(default_factory=list)
    last: Held = field(default_factory=list)
    state: Held = field(default_factory=list)
    layer: int | None = None
    before: Held = field(default_factory=list)
    site: _Site | None = None

    def at(self, entry: Entry) -> Held:
        role = entry.part.role
        if role.name != "embed" and role.stack != self.stack:
            self._enter(role.stack)
        if role.name == "read":
            if role.layer != self.layer:
                self.layer, self.before = role.layer, entry.inputs
            self.site = _Site(role.sublayer, entry.inputs)
        held = [*self.shared, *(tensor for x in self.embedded.values() for tensor in x)]
        if role.name in ("leave", "final_norm"):
            return held + self.state
        if self.site is None or role.layer is None:
            return held
        here = [tensor for name in _LOCALS[role.name] for tensor in getattr(self.site, name)]
        return [*held, *self.before, *here]

    def after(self, entry: Entry) -> None:
        role = entry.part.role
        self.last = entry.results
        if role.name == "embed":
            self.embedded[role.stack] = self.last
        if role.name == "branch":
            self.shared = [*self.shared, *self.last[1:]]
        if role.name in ("enter", "write", "norm_post"):
            self.state = self.last
        if self.site is not None and role.layer is not None:
            self.site.after(entry)

    def _enter(self, stack: str) -> None:
        """Another stack begins; what the one before made is held for its cross-attention."""
        if self.stack is not None:
            self.embedded[self.stack] = self.last
        self.stack, self.layer, self.shared = stack, None, []
