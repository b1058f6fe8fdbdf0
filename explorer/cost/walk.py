"""Walks a model on meta, layer by layer, and looks at every distinct piece once.

Most layers of a stack do the same to the same shapes. A layer is looked at again only if its modules, the shapes of its
input, or what earlier layers `shared` may differ. A 100-layer model so costs about what one layer costs, and the sum
over pieces equals the pass over the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from explorer.assembly.block import Block
from explorer.assembly.cache import Cache
from explorer.assembly.model import BlockModule, Model
from explorer.assembly.stack import Stack
from explorer.assembly.wiring import Pass
from explorer.blueprint.plan import BlockPlan, ModelPlan, StackPlan
from explorer.cost.likeness import likeness, shares
from explorer.cost.promises import promises_kept

META = torch.device("meta")
Run = Callable[[], Any]
T = TypeVar("T")
Look = Callable[[Run, "Block | None"], T]


@dataclass(frozen=True)
class Subject:
    """A model or a block on meta, with its plan. label: of a block. caches: whether it keeps keys and values."""

    module: Model | BlockModule
    plan: ModelPlan
    label: str
    caches: bool
    dtype: torch.dtype

    @property
    def reads_source(self) -> bool:
        """Whether an encoder, or a block's cross-attention, reads a source."""
        module = self.module
        return module.encoder is not None if isinstance(module, Model) else module.stack.intake.cross


@dataclass(frozen=True)
class Step:
    """One pass: sequences, new tokens, tokens of the source (None: not read), whether gradients are wanted.

    merge: whether layers that do the same are looked at once.
    """

    batch: int
    tokens: int
    source: int | None
    cache: Cache | None = None
    train: bool = False
    merge: bool = True


@dataclass
class Piece(Generic[T]):
    """What was seen of one distinct piece, and how often the model does it.

    layer: the layer that was looked at. cached: whether it used the step's cache.
    """

    seen: T
    times: int = 1
    layer: Block | None = None
    cached: bool = False


@dataclass(frozen=True)
class Walked(Generic[T]):
    """All distinct pieces of one pass, and the pieces that each block's layers are, in their order."""

    pieces: list[Piece[T]]
    layers: dict[str, list[Piece[T]]]


def walk(subject: Subject, step: Step, look: Look[T]) -> Walked[T]:
    """Every distinct piece of one pass, in order; ``look(run, layer)`` calls ``run()`` once and says what it saw.

    In training each piece is run forward and backward from inputs that require gradients. A block is looked at between
    enter and leave, which belong to the model.

    Raises: PluginError where a component breaks what its kind promises; whatever its forward raises.
    """
    subject.module.train(step.train)
    walker = _Walker(subject, step, look)
    with torch.set_grad_enabled(step.train):
        if isinstance(subject.module, Model):
            walker.model(subject.module)
        else:
            walker.block(subject.module)
    if step.cache is not None:
        step.cache.advance(step.tokens)
    for parameter in subject.module.parameters():
        parameter.grad = None
    return Walked(list(walker.pieces.values()), walker.layers)


class _Walker(Generic[T]):
    def __init__(self, subject: Subject, step: Step, look: Look[T]):
        self.subject, self.step, self.look, self.train = subject, step, look, step.train
        self.pieces: dict[Any, Piece[T]] = {}
        self.layers: dict[str, list[Piece[T]]] = {}
        self._outputs: dict[Any, Any] = {}

    def model(self, model: Model) -> None:
        plan, step = self.subject.plan, self.step
        intake = model.stack.intake
        context = None
        if model.encoder is not None and step.source is not None and plan.encoder is not None:
            # Nothing flows back into an encoder that no cross-attention reads.
            self.train = step.train and intake.cross
            source = self._input(step.source)
            context = self._stack(model, model.encoder, plan.encoder, source, Pass(ids=self._ids(source)))
            self.train = step.train
        x = self._input(step.tokens)
        read = intake.context(self._vectors(step.tokens), context, step.cache)
        run = Pass(context=read, cache=step.cache, ids=self._ids(x))
        h = self._stack(model, model.stack, plan.stack, x, run)
        head = model.head
        if head is not None:
            self._piece("head", lambda: head(h))

    def block(self, module: BlockModule) -> None:
        step = self.step
        x = self._vectors(step.tokens)
        source = None if step.source is None else self._vectors(step.source)
        context = module.stack.intake.context(x, source, step.cache)
        ids = None if self.subject.plan.vocab is None else self._token_ids(step.tokens)
        state = module.stack.enter(x)
        run = Pass(context=context, cache=step.cache, ids=ids)
        label = self.subject.label
        stack = next(stack for stack in self.subject.plan.stacks for name in stack.blocks if stack.label(name) == label)
        plan = stack.blocks[label.removeprefix(f"{stack.name}.")]
        self._piece(label, lambda: module.block(_leaf(state, self.train), run), run, module.block, plan)
        self.layers[label] = [self.pieces[label]]

    def _stack(self, model: Model, stack: Stack, plan: StackPlan, x: Tensor, run: Pass) -> Any:
        offset = 0 if run.cache is None else run.cache.offset
        state = self._piece((plan.name, "in"), lambda: stack.enter(stack.embed(x, model.embedding, offset)))
        for index, (layer, name) in enumerate(zip(stack.layers, plan.layers, strict=True)):
            assert isinstance(layer, Block), layer
            alike = likeness(layer) if self.step.merge and not shares(layer) else index
            key = plan.name, name, alike, signature(state), signature(run.context)
            do = partial(layer, state, run)
            state = self._piece(key, do, run, layer, plan.blocks[name])
            self.layers.setdefault(plan.label(name), []).append(self.pieces[key])
        return self._piece((plan.name, "out"), lambda: stack.close(state))

    def _piece(
        self, key: Any, do: Run, run: Pass | None = None, layer: Block | None = None, plan: BlockPlan | None = None
    ) -> Any:
        """Look at a piece unless one like it was seen; its output, as the next piece's input."""
        if key in self.pieces:
            self.pieces[key].times += 1
            return self._outputs[key]
        output: list[Any] = []
        shared = {} if run is None else run.shared

        def once() -> Any:
            with promises_kept(layer, plan):
                output.append(do())
            if self.train:
                backward([output[0], shared])
            return output[0]

        seen = self.look(once, layer)
        self.pieces[key] = Piece(seen, layer=layer, cached=run is not None and run.cache is not None)
        self._outputs[key] = _leaf(output[0], self.train)
        shared.update(_leaf(shared, self.train))
        return self._outputs[key]

    def _input(self, tokens: int) -> Tensor:
        return self._vectors(tokens) if self.subject.plan.vocab is None else self._token_ids(tokens)

    def _ids(self, x: Tensor) -> Tensor | None:
        return None if self.subject.plan.vocab is None else x

    def _token_ids(self, tokens: int) -> Tensor:
        return torch.empty((self.step.batch, tokens), dtype=torch.int64, device=META)

    def _vectors(self, tokens: int) -> Tensor:
        shape = (self.step.batch, tokens, self.subject.plan.dim)
        return torch.empty(shape, dtype=self.subject.dtype, device=META, requires_grad=self.train)


def signature(state: Any) -> Any:
    """Shapes, strides and dtypes in a state, however it nests them: equal ones cost the same."""
    if isinstance(state, Tensor):
        return tuple(state.shape), tuple(state.stride()), state.dtype, state.requires_grad
    if isinstance(state, Mapping):
        return tuple((key, signature(value)) for key, value in state.items())
    if isinstance(state, list | tuple):
        return tuple(signature(item) for item in state)
    return repr(state)


def _leaf(state: Any, train: bool) -> Any:
    """The same shapes as fresh inputs, that require gradients in training."""
    if isinstance(state, Tensor):
        fresh = torch.empty_strided(state.shape, state.stride(), dtype=state.dtype, device=META)
        return fresh.requires_grad_(train and fresh.is_floating_point())
    if isinstance(state, Mapping):
        return {key: _leaf(value, train) for key, value in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(_leaf(item, train) for item in state))
    if isinstance(state, list | tuple):
        return type(state)(_leaf(item, train) for item in state)
    return state


def backward(out: Any) -> None:
    """Backward from everything in a state that was computed from something with gradients."""
    tensors = [tensor for tensor in tensors_in(out) if tensor.grad_fn is not None]
    if tensors:
        torch.autograd.backward(tensors, [torch.empty_like(tensor) for tensor in tensors])


def tensors_in(state: Any) -> Iterator[Tensor]:
    """All tensors in a state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping):
        yield from tensors_in(list(state.values()))
    elif isinstance(state, list | tuple):
        for item in state:
            yield from tensors_in(item)
