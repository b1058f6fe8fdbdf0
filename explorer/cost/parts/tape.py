"""Parts in the order of a pass: what each one costs forward, and backward with the gradients that reach it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from explorer.cost.ledger.rows import Counts
from explorer.cost.parts.observation import Backward, Grads, Observation, Observations, Step
from explorer.cost.parts.part import Part
from explorer.cost.parts.relatives import Relatives
from explorer.cost.parts.trees import Like, put_together, tensors_in

Joined = tuple["Like", "Like"]
"""Two gradients of one tensor, which are added."""


@dataclass
class Entry:
    """One call. grads: what arrived at its new tensors; None: it does not run backward.

    joins: additions of gradients, one for each tensor that a later part uses too; weight_joins: of weights.
    """

    part: Part
    observation: Observation
    inputs: list[Tensor]
    outputs: list[Tensor]
    grads: Grads | None = None
    joins: list[Joined] = field(default_factory=list)
    weight_joins: list[Joined] = field(default_factory=list)

    @property
    def results(self) -> list[Tensor]:
        """What it returned: tensors of its inputs that it handed through, and new ones."""
        everything = [*self.inputs, *self.outputs]
        return [everything[place] for place in self.observation.places]

    @property
    def matmul_flops(self) -> int:
        return self.observation.total(self.grads).matmul_flops


@dataclass
class Tape:
    """The calls of one pass.

    common: by id those parameters that several parts read, and so get several gradients. relatives: see `Observations`.
    """

    observations: Observations
    common: Mapping[int, Tensor] = field(default_factory=dict)
    relatives: Relatives | None = None
    entries: list[Entry] = field(default_factory=list)

    def call(self, part: Part, inputs: Any, step: Step) -> Any:
        """What the part returns: new tensors, or those of the inputs that it hands through."""
        seen, tensors = self.observations.of(part, inputs, step, self.relatives)
        fresh = [like.make() for like in seen.fresh]
        self.entries.append(Entry(part, seen, tensors, fresh))
        everything = [*tensors, *fresh]
        return put_together(seen.result, [everything[place] for place in seen.places])

    def backward(self, outputs: Any, seeds: Mapping[int, Like] | None = None) -> dict[int, Like]:
        """Fill in `grads` and `joins` of all calls, for gradients that arrive at every tensor of `outputs`.

        They lie in memory as their tensors do; seeds: by the id of a tensor others. The order is autograd's: the last
        call first. Returns what arrives at each tensor and parameter, by its id.
        """
        arrived = _Arrived()
        for tensor in tensors_in(outputs):
            if tensor.requires_grad:
                arrived.at[id(tensor)] = (seeds or {}).get(id(tensor), replace(Like.of(tensor), grad=False))
        for entry in reversed(self.entries):
            grads = tuple(arrived.at.get(id(tensor)) for tensor in entry.outputs)
            if any(grads):
                entry.grads = grads
                self._hand_on(entry, entry.observation.backward(grads), arrived)
        return arrived.at

    def _hand_on(self, entry: Entry, backward: Backward, arrived: _Arrived) -> None:
        for tensor, like in zip(entry.inputs, backward.grads, strict=True):
            if like is not None:
                entry.joins += arrived.hand(id(tensor), like)
        for weight, reached in zip(entry.part.weights, backward.weights, strict=True):
            if reached and id(weight) in self.common:
                entry.weight_joins += arrived.hand(id(weight), Like.of(weight.detach()))


@dataclass
class _Arrived:
    """By the id of a tensor, the sum of the gradients that have arrived there."""

    at: dict[int, Like] = field(default_factory=dict)

    def hand(self, tensor: int, grad: Like) -> list[Joined]:
        """One more gradient; the addition that it takes, where it is not the first."""
        before = self.at.get(tensor)
        self.at[tensor] = grad if before is None else Like.of(before.make() + grad.make())
        return [] if before is None else [(before, grad)]


def addition(one: Like, other: Like) -> Counts:
    """What autograd's addition of two gradients costs: one operation for each number, a kernel of its own."""
    total = Like.of(one.make() + other.make())
    read, written = one.nbytes + other.nbytes, total.nbytes
    return Counts(
        cheap_ops=total.numel,
        read_activations=read,
        written_activations=written,
        fused_bytes=read + written,
        kernels=1,
    )
