"""How a pass flows through a model, whatever stands at each place: what is asked of every component, and how often.

Residuals, the order of the layers and the workload decide which tensors reach a norm or a sublayer, and which gradients
come back. So one pass of any model with a flow tells what all others with that flow ask of their components.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from explorer.assembly.sites import Sites
from explorer.blueprint.plan import ModelPlan, StackPlan, block_label
from explorer.cost.parts.observation import Grads, Observation, Step
from explorer.cost.parts.part import Role
from explorer.cost.parts.relatives import Last
from explorer.cost.parts.tape import Entry
from explorer.cost.parts.trees import Like, Tree
from explorer.cost.sweep.cells import sites_of
from explorer.registry.sites import Site

Place = tuple[int, int]
"""Index of the layer in its stack, and of the site in the layer."""


@dataclass(frozen=True)
class Group:
    """A place of a model where a component stands. kind: "branch", "norm", "final_norm" or "outside"."""

    kind: str
    stack: str = ""
    block: str = ""
    sublayer: str = ""

    @property
    def of(self) -> tuple[str, str] | None:
        """The stack and the block that it is in; None outside the layers."""
        return (self.stack, self.block) if self.block else None


OUTSIDE = Group("outside")
_NORMS = frozenset({"norm", "norm_out", "norm_post"})


def group_of(role: Role) -> Group | None:
    """Where the component stands that a part calls; None: the residual's own, or nobody's."""
    if role.name == "branch":
        return Group("branch", role.stack, role.block, role.sublayer)
    if role.name in _NORMS:
        return Group("norm", role.stack, role.block)
    if role.name == "final_norm":
        return Group("final_norm", role.stack)
    return OUTSIDE if role.name in ("embed", "head", "loss") else None


@dataclass(frozen=True)
class Answer:
    """What a component did to what it was asked: whatever does the same leaves the flow as it is."""

    result: Tree
    places: tuple[int, ...]
    fresh: tuple[Like, ...]
    grads: tuple[Like | None, ...]

    @staticmethod
    def of(seen: Observation, grads: Grads | None) -> Answer:
        # Gradients that do not fit the results come from another flow: there is nothing to say of them.
        fits = grads is not None and len(grads) == len(seen.fresh)
        return Answer(seen.result, seen.places, seen.fresh, seen.backward(grads).grads if grads and fits else ())


@dataclass(frozen=True)
class Asked:
    """One kind of call of a group. x, context: what it gets. grads: what comes back to its new tensors."""

    role: str
    step: Step
    x: Like
    context: Like | None
    grads: Grads | None

    @staticmethod
    def of(entry: Entry) -> Asked:
        given = dict(zip(_names(entry.observation.inputs[0]), entry.observation.inputs[1], strict=True))
        role, step = entry.part.role, entry.observation.step
        return Asked(role.name, step, given["x"], given.get("context"), entry.grads)

    def inputs(self, names: Sequence[str], vocab: bool) -> dict[str, Any]:
        """The arguments for a sublayer whose forward takes these names."""
        ids = torch.empty(self.x.shape[:2], dtype=torch.int64, device="meta") if vocab else None
        offered = {"context": None if self.context is None else self.context.make(), "ids": ids}
        return {"x": self.x.make(), **{name: offered[name] for name in names if name in offered}}


def _names(tree: Tree) -> list[str]:
    """The names of the tensors that a part gets: one by itself is x."""
    form: Any = tree.form
    if form[0] != "mapping":
        return ["x"]
    return [name for name, inner in form[1] if inner == ("tensor",)]


@dataclass
class Calls:
    """The calls of one group: for each kind of call where it is made, and what it was answered.

    places: None outside the layers.
    """

    places: dict[Asked, list[Place | None]] = field(default_factory=dict)
    answers: dict[Asked, Answer] = field(default_factory=dict)

    def note(self, entry: Entry, site: int) -> None:
        asked, role = Asked.of(entry), entry.part.role
        self.places.setdefault(asked, []).append(None if role.layer is None else (role.layer, site))
        self.answers.setdefault(asked, Answer.of(entry.observation, entry.grads))


@dataclass(frozen=True)
class Ask:
    """One kind of call, its answer, and where it is made: the sites (None outside the layers), and whether each is in
    the last layer of its block."""

    asked: Asked
    answer: Answer
    sites: tuple[Site | None, ...]
    here: tuple[bool, ...]

    @property
    def key(self) -> Hashable:
        return self.asked, self.answer, tuple(site and tuple(vars(site).items()) for site in self.sites), self.here


@dataclass(frozen=True, eq=False)
class Pattern:
    """All that a flow asks of one group. Many flows have it in common.

    given: as in `Flow`. vocab: whether there are token ids.
    """

    group: Group
    asks: tuple[Ask, ...]
    given: tuple[Any, ...]
    vocab: bool

    @cached_property
    def key(self) -> Hashable:
        return tuple(ask.key for ask in self.asks), self.given, self.vocab

    @cached_property
    def last(self) -> Last:
        """The last layer of the block that the group is in."""
        if self.group.of is None:
            return {}
        return {self.group.of: max(site.layer for ask in self.asks for site in ask.sites if site is not None)}


@dataclass(frozen=True, eq=False)
class Flow:
    """One pass, of a model or of a block alone (`block`: its stack and name).

    given: what the step was made from, and last whether the stack keeps a cache where it gets one.
    """

    plan: ModelPlan
    step: Step
    entries: Sequence[Entry]
    block: tuple[str, str] | None = None
    given: tuple[Any, ...] = ()
    _patterns: dict[Group, Pattern] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What is run, as reports name it."""
        return "model" if self.block is None else block_label(*self.block)

    @cached_property
    def own(self) -> list[Entry]:
        """Calls of residuals, and of nobody."""
        return [entry for entry in self.entries if group_of(entry.part.role) is None]

    @cached_property
    def groups(self) -> Mapping[Group, Calls]:
        """The calls of sublayers and norms."""
        found: dict[Group, Calls] = {}
        for entry in self.entries:
            group = group_of(entry.part.role)
            if group is not None and group != OUTSIDE:
                found.setdefault(group, Calls()).note(entry, self._site(entry.part.role))
        return found

    @cached_property
    def outside(self) -> list[Entry]:
        """The calls of embedding and head, and the loss."""
        return [entry for entry in self.entries if group_of(entry.part.role) == OUTSIDE]

    @cached_property
    def last(self) -> Mapping[tuple[str, str], int]:
        """The last layer of each block, by stack and block."""
        found: dict[tuple[str, str], int] = {}
        for entry in self.entries:
            role = entry.part.role
            if role.layer is not None:
                found[role.stack, role.block] = role.layer
        return found

    def pattern(self, group: Group) -> Pattern | None:
        """What is asked of a group; None: nothing."""
        if group not in self.groups:
            return None
        if group not in self._patterns:
            self._patterns[group] = self._pattern(group)
        return self._patterns[group]

    def _pattern(self, group: Group) -> Pattern:
        calls = self.groups[group]
        last = None if group.of is None else self.last[group.of]
        asks = tuple(
            Ask(
                asked,
                calls.answers[asked],
                tuple(None if place is None else self._site_at(group.stack, place) for place in places),
                tuple(place is not None and place[0] == last for place in places),
            )
            for asked, places in calls.places.items()
        )
        return Pattern(group, asks, self.given, self.plan.vocab is not None)

    def _site_at(self, stack: str, place: Place) -> Site:
        """Where in the model a call is made."""
        layer, index = place
        return list(self._sites[stack].of(layer))[index]

    def _site(self, role: Role) -> int:
        if role.layer is None:
            return 0
        order = self._order[role.stack, role.layer]
        return order.get(role.sublayer, 0)  # a parallel layer has one site for all

    @cached_property
    def _order(self) -> dict[tuple[str, int], dict[str, int]]:
        """The sites of each layer in order, by the sublayer that they are around."""
        found: dict[tuple[str, int], dict[str, int]] = {}
        for entry in self.entries:
            role = entry.part.role
            if role.layer is not None and role.name == "read":
                order = found.setdefault((role.stack, role.layer), {})
                order.setdefault(role.sublayer, len(order))
        return found

    @cached_property
    def _sites(self) -> dict[str, Sites]:
        return {stack.name: sites_of(self.plan, self._placed(stack)) for stack in self.plan.stacks}

    def _placed(self, stack: StackPlan) -> StackPlan:
        """The stack, or where the pass is that of a block alone, a stack of that block."""
        return stack if self.block is None else replace(stack, layers=(*stack.layers[:-1], self.block[1]))
