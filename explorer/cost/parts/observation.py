"""What one part does to inputs of one kind, forward and backward, seen once on meta and remembered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from explorer.assembly.cache import Cache
from explorer.cost.ledger.rows import Counts
from explorer.cost.ledger.trace import Trace
from explorer.cost.parts.attributes import as_built
from explorer.cost.parts.lies import Lies
from explorer.cost.parts.likeness import family, likeness
from explorer.cost.parts.modes import in_mode
from explorer.cost.parts.part import Inputs, Kind, Part
from explorer.cost.parts.relatives import Last, Relatives, Unlike
from explorer.cost.parts.storages import address
from explorer.cost.parts.trees import Like, Tree, put_together, take_apart
from explorer.cost.parts.watched import WatchedCache
from explorer.registry.registry import CostRule

META = torch.device("meta")
R = TypeVar("R")


@dataclass(frozen=True)
class Held:
    """A cache as a step finds it: room for `capacity` tokens of each sequence, `tokens` of them held.

    source: tokens of a source whose keys and values it holds; None: it holds none.
    """

    batch: int
    tokens: int
    capacity: int
    dtype: torch.dtype
    source: int | None = None


@dataclass(frozen=True)
class Step:
    """One pass: `tokens` new positions of `batch` sequences. source: tokens that an encoder, or a block, reads."""

    batch: int
    tokens: int
    source: int | None = None
    train: bool = False
    held: Held | None = None


@dataclass(frozen=True)
class Backward:
    """counts: of all rows, those of the forward too, which writes what its backward will read.

    grads: for each tensor of the inputs the gradient it gets. weights: which of the part's weights get one.
    """

    counts: Counts
    grads: tuple[Like | None, ...]
    weights: tuple[bool, ...]


Rules = Mapping[str, CostRule]
Grads = tuple["Like | None", ...]
"""For each new tensor of the outputs the gradient that arrives there."""


@dataclass
class Observation:
    """One part on inputs of one kind.

    places: for each tensor of the result its place among the inputs, where it is one of them, or behind those its place
    among the new ones. fresh: what the new ones are like. cache_bytes: held for the part after the step. lies: where
    the new ones lie.
    """

    part: Part
    inputs: Inputs
    step: Step
    rules: Rules
    result: Tree
    places: tuple[int, ...]
    fresh: tuple[Like, ...]
    cache_bytes: int
    lies: Lies
    _backward: dict[Grads, Backward] = field(default_factory=dict)

    def total(self, grads: Grads | None) -> Counts:
        """Forward, and backward where gradients arrive."""
        return self.backward(grads or (None,) * len(self.fresh)).counts

    def backward(self, grads: Grads) -> Backward:
        """What runs backward when these gradients arrive."""
        if grads not in self._backward:
            self._backward[grads] = _Look(self.part, self.inputs, self.step, self.rules).run(grads)[1]
        return self._backward[grads]

    def does_as(self, other: Observation) -> bool:
        """Whether two parts did the same, as far as both were looked at."""
        whole = (self.result, self.places, self.fresh, self.cache_bytes, self.lies)
        both = self._backward.keys() & other._backward.keys()
        alike = bool(both) and all(self._backward[grads] == other._backward[grads] for grads in both)
        return alike and whole == (other.result, other.places, other.fresh, other.cache_bytes, other.lies)


@dataclass
class Observations:
    """All that was looked at so far; parts of different models, blocks and rows of a study share it.

    rules: what plugins say of their own operators. exact: nothing is told by what looks alike; every module is looked
    at by itself.
    """

    rules: Rules = field(default_factory=dict)
    exact: bool = False
    _seen: dict[Hashable, Observation] = field(default_factory=dict)
    _kinds: dict[Hashable, Kind] = field(default_factory=dict)
    _families: dict[Hashable, int] = field(default_factory=dict)
    _kind_of: dict[int, tuple[nn.Module, Kind]] = field(default_factory=dict)

    def of(
        self, part: Part, inputs: object, step: Step, relatives: Relatives | None = None
    ) -> tuple[Observation, list[Tensor]]:
        """What a part does to a tree of inputs, and the tensors of that tree.

        relatives: what may tell of it without a look, see `sparingly`.
        """
        tree, tensors = take_apart(inputs)
        likes = tuple(map(Like.of, tensors))
        key = part.key, tree, likes, step.train, (step.held, part.filling) if part.cached else None
        seen = self._seen.get(key)
        if seen is None:
            told = None if relatives is None else relatives.known(part.role, key)
            seen = self._seen[key] = told or _Look(part, (tree, likes), step, self.rules).run(None)[0]
        if relatives is not None:
            relatives.note(part.role, key, seen)
        return seen, tensors

    def sparingly(self, last: Last, run: Callable[[Relatives | None], R]) -> R:
        """What `run` returns, which asks `of` about layers of blocks, without a look at those that others tell.

        Where they tell something wrong it is run again, with a look at each.
        """
        if self.exact:
            return run(None)
        relatives = Relatives(last)
        try:
            return run(relatives)
        except Unlike:
            for key in relatives.borrowed:
                del self._seen[key]
            return run(None)

    def kind(self, module: nn.Module | None) -> Kind:
        """Equal for modules that do the same to inputs that are alike."""
        if module is None:
            return Kind(-1)
        if id(module) not in self._kind_of:
            alike = id(module) if self.exact else likeness(module)
            if alike not in self._kinds:
                relatives = self._families.setdefault(family(alike), len(self._families))
                self._kinds[alike] = Kind(len(self._kinds), relatives)
            self._kind_of[id(module)] = module, self._kinds[alike]  # kept, so that no other module gets its id
        return self._kind_of[id(module)][1]


@dataclass
class _Look:
    """One run of a part on fresh tensors."""

    part: Part
    inputs: Inputs
    step: Step
    rules: Rules = field(default_factory=dict)

    def run(self, grads: Grads | None) -> tuple[Observation, Backward]:
        """Forward, then backward from `grads`, or where they are None from the usual ones."""
        with as_built(self.part):
            return self._run(grads)

    def _run(self, grads: Grads | None) -> tuple[Observation, Backward]:
        part, (tree, likes) = self.part, self.inputs
        tensors = [like.make() for like in likes]
        kept = as_found(part, self.inputs, self.step, WatchedCache) if part.cached else None
        view = None if kept is None else kept.views[0]
        storages: Set[int] = kept.storages if isinstance(kept, WatchedCache) else frozenset()
        trace = Trace(weights=part.constants, cache=storages, rules=self.rules)
        with in_mode(part, self.step.train), torch.set_grad_enabled(self.step.train), trace:
            inputs = put_together(tree, tensors)
            with trace.part(part.role.label):
                outputs = part.call(inputs, view)
            if part.check is not None:
                part.check(inputs, outputs)
            result, found = take_apart(outputs)
            trace.leaves(found)
            places, fresh = _places(found, tensors)
            likes = tuple(map(Like.of, fresh))
            if grads is None:
                grads = _usual(likes) if self.step.train else (None,) * len(fresh)
            backward = self._backward(trace, tensors, fresh, grads)
        held = 0 if view is None else view.held().total
        there = storages | {address(constant) for constant in part.constants}
        lies = Lies.of(fresh, tensors, there)
        observation = Observation(part, self.inputs, self.step, self.rules, result, places, likes, held, lies)
        observation._backward[grads] = backward
        return observation, backward

    def _backward(self, trace: Trace, tensors: Sequence[Tensor], outs: Sequence[Tensor], grads: Grads) -> Backward:
        weights = self.part.weights
        pairs = [(out, like.make()) for out, like in zip(outs, grads, strict=True) if like and out.grad_fn is not None]
        wanted = [tensor for tensor in (*tensors, *weights) if tensor.requires_grad]
        if not pairs or not wanted:
            return Backward(trace.counts(), (None,) * len(tensors), (False,) * len(weights))
        arrived, given = zip(*pairs, strict=True)
        found = torch.autograd.grad(arrived, wanted, given, allow_unused=True)
        trace.leaves([grad for grad in found if grad is not None])
        of = {id(tensor): grad for tensor, grad in zip(wanted, found, strict=True)}
        return Backward(
            trace.counts(),
            tuple(None if (grad := of.get(id(tensor))) is None else Like.of(grad) for tensor in tensors),
            tuple(of.get(id(weight)) is not None for weight in weights),
        )


def as_found(
    part: Part, inputs: Inputs, step: Step, kind: type[Cache] = Cache, device: torch.device | str = META
) -> Cache:
    """A part's own cache, that holds what a step finds there."""
    held = step.held
    assert held is not None, "a part that keeps something needs a cache"
    cache = kind(1, batch=held.batch, capacity=held.capacity, dtype=held.dtype, device=device)
    if not held.tokens and held.source is None:
        return cache
    empty = cache.timing_mark()
    # One token at least carries a source's keys and values in; few forwards take none.
    fill(part, part.filling or inputs, cache, max(held.tokens, 1), held.source)
    if not held.tokens:
        empty()
    return cache


def run(part: Part, inputs: Inputs, step: Step) -> Any:
    """What a part returns for fresh inputs, in evaluation mode."""
    tree, likes = inputs
    with as_built(part), in_mode(part, False):
        view = as_found(part, inputs, step).views[0] if part.cached else None
        return part.call(put_together(tree, [like.make() for like in likes]), view)


@torch.no_grad()
def fill(part: Part, inputs: Inputs, cache: Cache, tokens: int, source: int | None) -> None:
    """Put so many tokens, and a source where one is read, through a part into its cache; all else as in `inputs`."""
    tree, likes = inputs
    given = put_together(tree, [like.make(cache.device or META) for like in likes])
    x: Tensor = given["x"]
    given["x"] = x.new_empty((cache.batch, tokens, x.shape[-1]))
    if isinstance(given.get("ids"), Tensor):
        given["ids"] = given["ids"].new_empty((cache.batch, tokens))
    if isinstance(given.get("context"), Tensor) and source is not None:
        given["context"] = x.new_empty((cache.batch, source, x.shape[-1]))
    with in_mode(part, False):
        part.call(given, cache.views[0])
    cache.advance(tokens)


def _places(found: Sequence[Tensor], tensors: Sequence[Tensor]) -> tuple[tuple[int, ...], list[Tensor]]:
    """Where each tensor stands among others and, behind those, among the new ones; and the new ones."""
    order = {id(tensor): at for at, tensor in enumerate(tensors)}
    fresh: list[Tensor] = []
    for tensor in found:
        if id(tensor) not in order:
            order[id(tensor)] = len(tensors) + len(fresh)
            fresh.append(tensor)
    return tuple(order[id(tensor)] for tensor in found), fresh


def _usual(likes: Sequence[Like]) -> Grads:
    """Gradients that lie in memory as their tensors do, where those have any."""
    return tuple(_gradient(like) if like.grad else None for like in likes)


def _gradient(like: Like) -> Like:
    return replace(Like.of(torch.empty_like(like.make())), grad=False)
