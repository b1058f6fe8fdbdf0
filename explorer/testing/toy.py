"""A component at toy size: in a model, in a block, alone in a block, bare."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.build import build_block, build_model
from explorer.assembly.construction import construction
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.residual import PLACEMENTS, Residual
from explorer.blueprint.load import load
from explorer.blueprint.plan import ModelPlan
from explorer.cost.instance import ALONE
from explorer.errors import BlueprintError, ExplorerError, RefusedError, UsageError
from explorer.registry.chosen import Chosen
from explorer.registry.registry import Component, Registry
from explorer.registry.sites import Site
from explorer.testing.expect import Unmet
from explorer.testing.values import required_values

DIM, HEADS, LAYERS, VOCAB, BATCH, TOKENS = 16, 4, 2, 32, 2, 5
HEAD_DIM = DIM // HEADS
LONGEST = TOKENS + 2
SITE = Site(index=0, total=4, sublayer=0, sublayers=2, layer=0, layers=LAYERS, decoder_layers=LAYERS)

_SIZES: Mapping[str, Any] = {"dim": DIM, "heads": HEADS, "layers": LAYERS, "vocab": VOCAB}
_TRIES = 500

Changes = Mapping[str, Any]
_NOTHING: Changes = {}


@dataclass(frozen=True)
class Toy:
    """Builds one component in toy surroundings, all else at its default.

    given: values of its parameters; None: small ones that the constructor accepts.
    `changes` are fields of a blueprint on top. Everything is built on the CPU in float32, in training mode, from one
    seed, unless said otherwise.
    """

    component: Component
    registry: Registry = field(repr=False, compare=False)
    given: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        return self.component.kind.name

    @cached_property
    def params(self) -> Mapping[str, Any]:
        """What is written for the component.

        Raises: Unmet where no value tried for its required parameters is accepted.
        """
        if self.given is not None:
            return self.given
        if not any(parameter.required for parameter in self.component.schema.parameters.values()):
            return _NOTHING
        refusal: ExplorerError | None = None
        for values in itertools.islice(required_values(self.component.schema, self.registry), _TRIES):
            refused = Toy(self.component, self.registry, values).refusal()
            if refused is None:
                return values
            refusal = refusal or refused
        wanted = f"small values to be accepted at dim {DIM} for {self.component.schema.text}"
        raise Unmet(wanted, f"{refusal or 'none is known'}; give some with contract_cases(parameters=...)")

    @cached_property
    def placements(self) -> tuple[str, ...]:
        """The norm placements that the residual of the toy declares.

        Raises: Unmet where it is none.
        """
        plan = load({**_SIZES, **self.written(), "placement": "none"}, registry=self.registry).plan()
        residual = plan.stack.residual.build({"dim": DIM, "site": SITE})
        if not isinstance(residual, Residual):
            raise Unmet("an explorer.Residual", type(residual).__name__)
        return type(residual).placements

    @cached_property
    def placement(self) -> str:
        """`pre`, or the first that is declared."""
        return next((name for name in PLACEMENTS if name in self.placements), PLACEMENTS[0])

    def written(self) -> dict[str, Any]:
        """The component as a field of a blueprint."""
        return {self.kind: {self.component.label: dict(self.params)}}

    def refusal(self) -> ExplorerError | None:
        """Why these parameters are not to be used: they are refused, or too small for a text of a few tokens."""
        try:
            self.model()(ids(tokens=LONGEST))
        except (BlueprintError, RefusedError, UsageError) as error:
            return error
        return None

    def with_setting(self, setting: Changes) -> Toy:
        return Toy(self.component, self.registry, {**self.params, **setting})

    def plan(self, changes: Changes = _NOTHING) -> ModelPlan:
        fields = {**_SIZES, "placement": self.placement, **self.written(), **changes}
        return load(fields, registry=self.registry).plan()

    def model(self, changes: Changes = _NOTHING, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Model:
        """Two layers with embedding and head."""
        return build_model(self.plan(changes), device=device, dtype=dtype)

    def block(
        self, changes: Changes = _NOTHING, name: str | None = None, *, dtype: torch.dtype | None = None
    ) -> BlockModule:
        """One layer, from vectors to vectors; `name` where there are several."""
        return build_block(self.plan(changes), name, device="cpu", dtype=dtype)

    def alone(self, changes: Changes = _NOTHING) -> BlockModule:
        """One layer that is this attention or feed-forward and nothing else: no norm, no residual."""
        return self.block({**ALONE, **self.written(), **changes})

    @cached_property
    def chosen(self) -> Chosen:
        """The component with its parameters as a plan holds them."""
        stack = self.plan().stack
        found = {**vars(stack.base), "residual": stack.residual}[self.kind]
        assert isinstance(found, Chosen), found
        return found

    def bare(self, *, dtype: torch.dtype = torch.float32) -> Any:
        """What the constructor of a norm, an activation or a position makes of its menu."""
        menu = {"dim": DIM, "heads": HEADS, "head_dim": HEAD_DIM, "causal": True}
        with construction(0, "cpu", dtype):
            return self.chosen.build(menu)


def ids(batch: int = BATCH, tokens: int = TOKENS, seed: int = 0) -> Tensor:
    """Token ids (B, T)."""
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def vectors(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal values, float32; (BATCH, TOKENS, DIM) unless a shape is given."""
    return torch.randn(shape or (BATCH, TOKENS, DIM), generator=torch.Generator().manual_seed(seed))
