"""Memory of one part on inputs of one kind, seen once on fake CPU tensors and remembered."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from explorer.cost.memory.fake import on_fake_cpu
from explorer.cost.memory.live import working_set
from explorer.cost.memory.saved import Saved, saved_by
from explorer.cost.parts.attributes import as_built
from explorer.cost.parts.failures import foreign
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.modes import in_mode
from explorer.cost.parts.observation import Observation, as_found
from explorer.cost.parts.part import Part
from explorer.cost.parts.storages import address
from explorer.cost.parts.tape import Entry
from explorer.cost.parts.trees import put_together, tensors_in


@dataclass(frozen=True)
class Footprint:
    """Memory of one part, in bytes.

    forward: its working set in evaluation mode, without gradients. lies: where its new tensors lie then. Of a pass of
    training also saved: what autograd keeps in training mode, and backward: the working set of forward and backward.
    as_on_meta: whether its new tensors lie in training where they do on meta.
    """

    forward: int
    lies: Lies
    saved: Saved | None = None
    backward: int = 0
    as_on_meta: bool = True

    @property
    def kept(self) -> Saved:
        """What autograd keeps, of a part of a pass of training."""
        assert self.saved is not None, "a pass without gradients keeps nothing"
        return self.saved


@dataclass
class Footprints:
    """The footprints of all parts that were looked at."""

    _seen: dict[int, tuple[Observation, Footprint]] = field(default_factory=dict)

    def of(self, entry: Entry) -> Footprint:
        """The footprint of one call. Raises: CannotRun, where its forward or backward fails without values."""
        seen = entry.observation
        if id(seen) not in self._seen:
            self._seen[id(seen)] = seen, _look(entry.part, seen)  # kept, so that no other observation gets its id
        return self._seen[id(seen)][1]


def _look(part: Part, seen: Observation) -> Footprint:
    with on_fake_cpu(part.modules), as_built(part):
        here = _Run(part, seen)
        with as_built(part), in_mode(part, False):
            forward = working_set(here, here.inputs(grad=False))
        if not seen.step.train:
            return Footprint(forward, seen.lies)  # looked at on meta in evaluation mode too
        lies = here.lies
        with as_built(part), in_mode(part, True):
            saved = saved_by(here, here.inputs())
        with as_built(part), in_mode(part, True):
            backward = working_set(here, here.inputs(), grad=True)
    return Footprint(forward, lies, replace(saved, out=None), backward, here.lies == seen.lies)


class _Run:
    """Calls a part. lies: where its new tensors lay the last time."""

    def __init__(self, part: Part, seen: Observation) -> None:
        self.part = part
        self.seen = seen
        self.lies = seen.lies
        self.constants = set(map(address, part.constants))
        with foreign():
            self.view = as_found(part, seen.inputs, seen.step, device="cpu").views[0] if part.cached else None

    def inputs(self, *, grad: bool = True) -> Any:
        """Fresh ones."""
        tree, likes = self.seen.inputs
        return put_together(tree, [replace(like, grad=like.grad and grad).make("cpu") for like in likes])

    def __call__(self, inputs: Any) -> Any:
        came = tensors_in(inputs)
        with foreign():
            out = self.part.call(inputs, self.view)
        found, places = tensors_in(out), self.seen.places
        fresh = [found[places.index(len(came) + new)] for new in range(len(self.seen.fresh))]
        self.lies = Lies.of(fresh, came, self.constants)
        return out
