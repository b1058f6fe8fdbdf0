"""The layer that stands for a block, and the stream as the layers before leave it: what every tool runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from explorer.assembly.block import Block
from explorer.assembly.build import build_block, build_model
from explorer.assembly.cache import Cache
from explorer.assembly.construction import construction, dtype_of
from explorer.assembly.model import Model
from explorer.assembly.residual import Residual
from explorer.assembly.sites import Sites
from explorer.assembly.stack import Stack
from explorer.assembly.wiring import Pass
from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan
from explorer.blueprint.workload import Workload
from explorer.cost.parts.likeness import likeness
from explorer.cost.parts.trees import Like, take_apart
from explorer.errors import UsageError


@dataclass(frozen=True)
class Place:
    """Where a block stands: its stack, its name there, and the last layer of that name."""

    plan: ModelPlan
    stack: StackPlan
    name: str

    @classmethod
    def of(cls, plan: ModelPlan, label: str) -> Place:
        """Raises: UsageError where no block is called so."""
        for stack in plan.stacks:
            for name in stack.blocks:
                if stack.label(name) == label:
                    return cls(plan, stack, name)
        raise UsageError(f"no block is called {label!r}")

    @property
    def label(self) -> str:
        return self.stack.label(self.name)

    @property
    def block(self) -> BlockPlan:
        return self.stack.blocks[self.name]

    @property
    def in_encoder(self) -> bool:
        return self.plan.encoder is not None and self.stack.name == self.plan.encoder.name

    @property
    def layer(self) -> int:
        """The last layer of that name; 0 where there is no model around the block."""
        if not self.plan.whole or self.name not in self.stack.layers:
            return 0
        return len(self.stack.layers) - 1 - self.stack.layers[::-1].index(self.name)


@dataclass
class Stage:
    """A place built on a device, and what of a settled workload its layer gets.

    Nothing here belongs to anyone else: a tool may leave hooks, gradients or a full cache behind.
    """

    place: Place
    workload: Workload
    device: str
    stack: Stack = field(init=False)
    layer: Block = field(init=False)
    _before: Callable[[Any, Pass], Any] = field(init=False)

    def __post_init__(self) -> None:
        block = build_block(self.place.plan, self.place.label, device=self.device, dtype=self._dtype)
        self.stack, self.layer = block.stack, block.block
        self._before = self._residuals_alone
        if self.place.layer and any("shared" in w.names for part in self.layer.parts() for w in part.wirings):
            self._take_model()

    @property
    def train(self) -> bool:
        return self.workload.phase == "train"

    @property
    def source(self) -> int | None:
        """Tokens of the context that cross-attention reads; None: there is none."""
        return self.workload.source if self.stack.intake.cross else None

    @property
    def tokens(self) -> int:
        """New tokens of each sequence."""
        return _length(self.workload.tokens)

    @property
    def held(self) -> int:
        """Tokens that stand in a cache."""
        return _length(self.workload.context) - self.tokens

    @property
    def source_cached(self) -> bool:
        return self.source is not None and self.workload.source_is_cached

    @property
    def cached(self) -> bool:
        """Whether the pass needs a cache: of its tokens or of a source."""
        return self.held > 0 or self.source_cached

    def inputs(self) -> tuple[Any, Pass]:
        """The state that the layer reads, and what else comes with the pass; the cache is as the pass finds it."""
        cache = self._filled() if self.cached else None
        context = None if self.source is None else self._vectors(self.source)
        return self._pass(self.tokens, context, cache)

    def _pass(self, tokens: int, context: Tensor | None, cache: Cache | None) -> tuple[Any, Pass]:
        x = self._vectors(tokens)
        ids = None
        if self.place.plan.vocab is not None:
            ids = torch.zeros((self.workload.batch, tokens), dtype=torch.int64, device=self.device)
        run = Pass(self.stack.intake.context(x, context, cache), cache=cache, ids=ids)
        return self._before(x, run), run

    def _filled(self) -> Cache:
        """A cache with the tokens before this pass, and the source's keys and values."""
        cache = self.stack.intake.make_cache(
            self.workload.batch,
            _length(self.workload.context),
            dtype_of(self.workload.kv_dtype or self.workload.dtype),
            self.device,
        )
        rewind = cache.timing_mark()
        # One token at least carries the source's keys and values in.
        tokens = max(self.held, 1)
        context = None if self.source is None else self._vectors(self.source)
        state, run = self._pass(tokens, context, cache)
        with torch.no_grad():
            self.layer(state, run)
        cache.advance(tokens) if self.held else rewind()
        return cache

    def _residuals_alone(self, x: Tensor, run: Pass) -> Any:
        """What the sites of all layers before make of x: only residuals change what a state is made of."""
        state = self.stack.enter(x)
        seen: dict[Any, Any] = {}
        with torch.no_grad():
            for residual in self._sites_before():
                tree, tensors = take_apart(state)
                key = likeness(residual), tree, tuple(map(Like.of, tensors))
                if key not in seen:
                    given, inside = residual.read(state)
                    seen[key] = residual.write(inside, torch.empty_like(given))
                state = seen[key]
        return state

    def _sites_before(self) -> list[Residual]:
        place, sites = self.place, Sites(self.place.plan, self.place.stack, encoder=self.place.in_encoder)
        chosen = place.stack.residual
        with construction(place.plan.seed, self.device, self._dtype), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # building the layer has said it
            return [
                chosen.build({"dim": place.plan.dim, "site": site})
                for layer in range(place.layer)
                for site in sites.of(layer)
            ]

    def _take_model(self) -> None:
        """The layer in its model: what earlier layers share decides what it does."""
        model = build_model(self.place.plan, device=self.device, dtype=self._dtype)
        assert isinstance(model, Model), model
        stack = model.encoder if self.place.in_encoder and model.encoder is not None else model.stack
        layers = list(stack.layers)
        layer = layers[self.place.layer]
        assert isinstance(layer, Block), layer
        self.stack, self.layer = stack, layer
        self._before = lambda x, run: self._layers_before(x, run, layers[: self.place.layer])

    def _layers_before(self, x: Tensor, run: Pass, layers: list[Any]) -> Any:
        state = self.stack.enter(x)
        with torch.no_grad():
            for layer in layers:
                state = layer(state, run)
        return state

    def _vectors(self, tokens: int) -> Tensor:
        shape = (self.workload.batch, tokens, self.place.plan.dim)
        return torch.zeros(shape, dtype=self._dtype, device=self.device)

    @property
    def _dtype(self) -> torch.dtype:
        return dtype_of(self.workload.dtype)


def _length(value: int | None) -> int:
    assert value is not None, "an unsettled workload"
    return value
