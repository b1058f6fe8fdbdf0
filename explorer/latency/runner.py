"""Make a block or a model ready to be timed on a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

# Tokens (batch x new ones) in one step of filling a cache: what a decode leaves room for, a long prompt may not.
_PRIMING_TOKENS = 8192


@dataclass(frozen=True)
class Feed:
    """What goes into a module: hidden states (B, T, dim), or token ids (B, T) below `vocab`; a source if it reads one.

    The source of a block is the encoder's output (B, source, dim), that of a model the encoder's input.
    """

    dim: int
    vocab: int | None = None
    source: bool = False


def runnable(make: Make, workload: Workload, feed: Feed, *, device: str, seed: int = 0) -> Call:
    """A call that runs one step of a settled workload, always the same one, on a module of its own.

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
        return _Training(module.train(), workload, draw)
    return _inference(module.eval(), workload, draw)


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


def _inference(module: nn.Module, workload: Workload, draw: _Draw) -> Call:
    tokens, context = _known(workload.tokens), _known(workload.context)
    x, source = draw.inputs(workload.batch, tokens), draw.source(workload)
    if workload.phase != "decode" and context == tokens:
        return torch.no_grad()(lambda: module(x, source))
    kv_dtype = dtype_of(workload.kv_dtype or workload.dtype)
    cache = module.make_cache(batch=workload.batch, capacity=context, dtype=kv_dtype, device=draw.device)  # type: ignore[operator]
    rewind = _fill(module, cache, context - tokens, source=source, batch=workload.batch, draw=draw)

    @torch.no_grad()
    def step() -> Tensor:
        rewind()
        return module(x, None, cache=cache)

    return step


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


class _Training:
    """Forward and backward from a fixed output gradient; gradients of inputs and parameters are None at the start."""

    def __init__(self, module: nn.Module, workload: Workload, draw: _Draw) -> None:
        self.module = module
        self.x = draw.inputs(workload.batch, _known(workload.tokens))
        self.source = draw.source(workload)
        for tensor in (self.x, self.source):
            if tensor is not None and tensor.is_floating_point():
                tensor.requires_grad_(True)
        given = [tensor for tensor in (self.x, self.source) if tensor is not None]
        self.leaves = [*given, *module.parameters()]
        self.draw = draw
        self.gradient: Tensor | None = None

    @torch.enable_grad()
    def __call__(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None
        y: Tensor = self.module(self.x, self.source)
        if self.gradient is None:
            self.gradient = self.draw.normal(tuple(y.shape)).to(y.dtype)
        y.backward(self.gradient)


def _known(length: int | None) -> int:
    assert length is not None, "a workload is settled before it is run"
    return length
