"""Make a block or a model ready to be timed on a workload."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol

import torch
from torch import Tensor, nn

from explorer.assembly.cache import Cache
from explorer.assembly.construction import dtype_of
from explorer.blueprint.workload import Workload
from explorer.errors import MeasureError, UsageError
from explorer.latency.clock import Call

Make = Callable[[str, torch.dtype], nn.Module]
"""Builds a module on a device with parameters of a dtype. Its forward is `(x, source, cache=cache) -> Tensor`, as a
block's and a model's are; for a cache it also has `make_cache(batch, capacity, dtype, device)`."""

Forward = Callable[..., Tensor]
"""What runs a module: itself, or what a compiler made of it."""

# Tokens (batch x new ones) in one step of filling a cache: what a decode leaves room for, a long prompt may not.
_PRIMING_TOKENS = 8192


class Step(Protocol):
    """One step of a workload on one module, ready to run again and again from the same place."""

    @property
    def phase(self) -> str:
        """`prefill`, `decode` or `train`."""

    @property
    def module(self) -> nn.Module | None:
        """What runs, None for a bare function."""

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and of its cache."""

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """What the module takes, a cache aside."""

    def through(self, forward: Forward) -> Call:
        """The call that runs the step with `forward` in the module's place."""

    def result(self, forward: Forward, *inputs: Tensor | None) -> Tensor:
        """What `forward` makes of inputs in the place of the step's own; the step begins again where it did."""

    def copied(self) -> Step:
        """The same step on a copy of the module and of its cache, with the same inputs."""


@dataclass(frozen=True)
class Feed:
    """What goes into a module: hidden states (B, T, dim), or token ids (B, T) below `vocab`; a source if it reads one.

    The source of a block is the encoder's output (B, source, dim), that of a model the encoder's input.
    """

    dim: int
    vocab: int | None = None
    source: bool = False


def ready(make: Make, workload: Workload, feed: Feed, *, device: str, seed: int = 0) -> Step:
    """One step of a settled workload on a module of its own.

    prefill and decode: eval mode without gradients. With a cache every call starts from the same place in it.
    train: training mode, forward and backward from a fixed output gradient, `.grad` None at the start.
    Raises UsageError for a workload that runs layers again in backward, which is counted only; MeasureError for weights
    in another dtype than the activations.
    """
    if workload.recompute not in (None, "none"):
        raise UsageError(
            f"workload: recompute {workload.recompute} is counted only, not measured: measure with recompute none"
        )
    if workload.weight_dtype not in (None, workload.dtype):
        raise MeasureError(
            f"not measured: weights in {workload.weight_dtype} beside activations in {workload.dtype} are counted only"
        )
    draw = _Draw(feed, dtype_of(workload.dtype), device, torch.Generator(device).manual_seed(seed))
    module = make(device, draw.dtype)
    if workload.phase == "train":
        return _training(module.train(), workload, draw)
    return _inference(module.eval(), workload, draw)


@dataclass(frozen=True)
class Bare:
    """A function without weights, or whose weights are its own affair."""

    call: Call
    phase: str = "prefill"
    module: None = None
    nbytes: int = 0
    inputs: tuple[()] = ()

    def through(self, forward: Forward) -> Call:
        return self.call

    def result(self, forward: Forward, *inputs: Tensor | None) -> NoReturn:
        raise MeasureError("a function runs through no module")

    def copied(self) -> Bare:
        return self


@dataclass(frozen=True)
class _Draw:
    """Random inputs, because constants flatter some devices, from a generator of their own."""

    feed: Feed
    dtype: torch.dtype
    device: str
    generator: torch.Generator

    def inputs(self, batch: int, tokens: int) -> Tensor:
        """(B, T, dim) from N(0, 1), or ids (B, T)."""
        if self.feed.vocab is None:
            return self.normal((batch, tokens, self.feed.dim))
        return torch.randint(self.feed.vocab, (batch, tokens), generator=self.generator, device=self.device)

    def source(self, workload: Workload) -> Tensor | None:
        """(B, source, dim) or ids (B, source), or None where nothing reads one."""
        if not self.feed.source:
            return None
        return self.inputs(workload.batch, _known(workload.source))

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=self.dtype, device=self.device)


def _inference(module: nn.Module, workload: Workload, draw: _Draw) -> Step:
    tokens, context = _known(workload.tokens), _known(workload.context)
    x, source = draw.inputs(workload.batch, tokens), draw.source(workload)
    if workload.phase != "decode" and context == tokens:
        return _Pass(module, x, source)
    kv_dtype = dtype_of(workload.kv_dtype or workload.dtype)
    cache = module.make_cache(batch=workload.batch, capacity=context, dtype=kv_dtype, device=draw.device)  # type: ignore[operator]
    rewind = _fill(module, cache, context - tokens, source=source, batch=workload.batch, draw=draw)
    return _Cached(workload.phase, module, x, cache, rewind)


@dataclass(frozen=True)
class _Pass:
    """Forward over a text, without cache."""

    module: nn.Module
    x: Tensor
    source: Tensor | None
    phase: str = "prefill"

    @property
    def nbytes(self) -> int:
        return _bytes_of(self.module)

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return self.x, self.source

    def through(self, forward: Forward) -> Call:
        return torch.no_grad()(lambda: forward(self.x, self.source))

    def result(self, forward: Forward, *inputs: Tensor | None) -> Tensor:
        return forward(*inputs)

    def copied(self) -> _Pass:
        return _Pass(copy.deepcopy(self.module), self.x, self.source)


@dataclass(frozen=True)
class _Cached:
    """Forward of the tokens that follow what a cache holds; `rewind` takes it back to that place."""

    phase: str
    module: nn.Module
    x: Tensor
    cache: Cache
    rewind: Callable[[], None]

    @property
    def nbytes(self) -> int:
        return _bytes_of(self.module) + self.cache.nbytes()

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return (self.x,)

    def through(self, forward: Forward) -> Call:
        @torch.no_grad()
        def step() -> Tensor:
            self.rewind()
            return forward(self.x, None, cache=self.cache)

        return step

    def result(self, forward: Forward, *inputs: Tensor | None) -> Tensor:
        self.rewind()
        (x,) = inputs
        return forward(x, None, cache=copy.deepcopy(self.cache))  # a step changes the states that a cache holds

    def copied(self) -> _Cached:
        self.rewind()
        module, cache = copy.deepcopy((self.module, self.cache))
        return _Cached(self.phase, module, self.x, cache, cache.timing_mark())


def _fill(
    module: nn.Module, cache: Cache, held: int, *, source: Tensor | None, batch: int, draw: _Draw
) -> Callable[[], None]:
    """Run the tokens before this step, and the source, through the cache; returns what takes it back to this place.

    Run, not faked: only the module knows what it keeps of a token (windows, compressed entries, states).
    """
    empty = cache.timing_mark()
    tokens = max(held, 1)  # one at least: keys and values of the source are no part of a step
    most = max(1, _PRIMING_TOKENS // batch)
    with torch.no_grad():
        for start in range(0, tokens, most):
            count = min(most, tokens - start)
            module(draw.inputs(batch, count), None if start else source, cache=cache)
    return cache.timing_mark() if held else empty


def _training(module: nn.Module, workload: Workload, draw: _Draw) -> Step:
    x, source = draw.inputs(workload.batch, _known(workload.tokens)), draw.source(workload)
    given = tuple(tensor for tensor in (x, source) if tensor is not None)
    for tensor in given:
        if tensor.is_floating_point():
            tensor.requires_grad_(True)
    return _Training(module, x, source, _Gradient(draw))


class _Gradient:
    """Of an output, drawn when its shape is known: the same for every call."""

    def __init__(self, draw: _Draw) -> None:
        self._draw = draw
        self._drawn: Tensor | None = None

    def of(self, y: Tensor) -> Tensor:
        if self._drawn is None:
            self._drawn = self._draw.normal(tuple(y.shape)).to(y.dtype)
        return self._drawn


@dataclass(frozen=True)
class _Training:
    """Forward and backward from a fixed output gradient; gradients of inputs and parameters are None at the start.

    Each call resets them itself, because one call follows the other in a sample: that is in its time, some 0.25 us of
    the host for each tensor (CPU, freeing a small gradient included). Left in place they would be added up, which costs
    the device more.
    """

    module: nn.Module
    x: Tensor
    source: Tensor | None
    gradient: _Gradient
    phase: str = "train"

    @property
    def nbytes(self) -> int:
        return _bytes_of(self.module)

    @property
    def inputs(self) -> tuple[Tensor | None, ...]:
        return self.x, self.source

    def through(self, forward: Forward) -> Call:
        leaves = [tensor for tensor in (self.x, self.source, *self.module.parameters()) if tensor is not None]

        @torch.enable_grad()
        def step() -> Tensor:
            for leaf in leaves:
                leaf.grad = None
            y = forward(self.x, self.source)
            y.backward(self.gradient.of(y))
            return y

        return step

    def result(self, forward: Forward, *inputs: Tensor | None) -> Tensor:
        return forward(*inputs)

    def copied(self) -> _Training:
        return _Training(copy.deepcopy(self.module), self.x, self.source, self.gradient)


def _bytes_of(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def _known(length: int | None) -> int:
    assert length is not None, "a workload is settled before it is run"
    return length
