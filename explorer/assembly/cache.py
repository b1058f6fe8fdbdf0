"""What a decoder keeps between calls: growing keys and values, constant-size states, keys and values of a source."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from explorer.errors import UsageError


@dataclass(frozen=True)
class CacheBytes:
    """Bytes held for the tokens so far (not the room reserved for later ones), by how they grow."""

    tokens: int
    """Entries appended by `extend`: grow with the tokens, up to a window."""
    states: int
    """Constant-size states."""
    cross: int
    """Keys and values of the source, computed once."""

    @property
    def total(self) -> int:
        return self.tokens + self.states + self.cross


@dataclass(frozen=True)
class Written:
    """What `extend` got under one name: bytes, those included that its window has let go.

    every: tokens to an entry. full: tokens after which the window is full and nothing more is held; None: never.
    """

    nbytes: int
    every: int
    full: int | None


_STEP = 64
"""Tokens that a step beside a full window may have, before the window is copied for it."""


class Entries:
    """One named, growing tensor (B, ..., n, width) in a buffer with room for more: all `given` entries, or the last.

    A window that is shorter than the text lies in a ring: entry i stands at i % period and once more `period` behind,
    so that the last ones lie in a row and in order wherever the ring begins, and a step never moves them. A single
    entry takes the same path at every step: a compiler needs one graph for all of them.
    """

    def __init__(
        self, like: Tensor, size: int, window: int | None, every: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.window = window
        self.every = every
        # Entries that a call's queries see beside the new ones. Of one token the first query comes with its own entry.
        self.before = size if window is None else window - (every == 1)
        self.period = self.before + (size if window is None else min(window, _STEP))
        self.ring = window is not None and 2 * self.period <= size
        # The first place of a ring's buffer stays free, so that no view begins where the buffer does: for a compiler
        # that would be one more case.
        places = 1 + 2 * self.period if self.ring else size
        self.buffer = torch.empty((*like.shape[:-2], places, like.shape[-1]), dtype=dtype, device=device)
        self.each = like.shape[:-2].numel() * like.shape[-1] * self.buffer.itemsize
        self.given = 0

    def append(self, new: Tensor) -> Tensor:
        """Keep `new`, or the last `window` entries; returns what its queries may see."""
        count, held = new.shape[-2], min(self.given, self.before)
        if self.ring:
            if count > self.period - self.before:
                return self._pass_through(new, held)
            self._turn(new)
            return self._last(held + count)
        self.buffer.narrow(-2, self.given, count).copy_(new)
        self.given = self.given + count
        return self.buffer.narrow(-2, self.given - held - count, held + count)

    def nbytes(self) -> int:
        return self.each * (self.given if self.window is None else min(self.given, self.window))

    def written(self) -> Written:
        return Written(self.each * self.given, self.every, None if self.window is None else self.window * self.every)

    def _last(self, count: int) -> Tensor:
        end = self.period + (self.given - 1) % self.period + 2
        return self.buffer.narrow(-2, end - count, count)

    def _turn(self, new: Tensor) -> None:
        """Put entries in both their places in the ring."""
        count, first, new = new.shape[-2], self.given % self.period, new.unsqueeze(-3)
        self.given = self.given + count
        both = self.buffer.narrow(-2, 1, 2 * self.period).unflatten(-2, (2, self.period))
        if count == 1:
            both.narrow(-2, first, 1).copy_(new)
            return
        straight = min(count, self.period - first)  # up to the ring's end; the others begin it anew
        both.narrow(-2, first, straight).copy_(new.narrow(-2, 0, straight))
        both.narrow(-2, 0, count - straight).copy_(new.narrow(-2, straight, count - straight))

    def _pass_through(self, new: Tensor, held: int) -> Tensor:
        """More new entries than the ring has room for beside the held: all are seen once, and the last ones stay."""
        seen = new.to(self.buffer.dtype)
        if held:
            seen = torch.cat([self._last(held), seen], dim=-2)
        gone = max(new.shape[-2] - self.period, 0)
        self.given = self.given + gone
        self._turn(new.narrow(-2, gone, new.shape[-2] - gone))
        return seen


class CacheView:
    """The cache of one attention."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._entries: dict[str, Entries] = {}
        self._states: dict[str, Tensor] = {}
        self._once: tuple[Tensor, ...] | None = None
        self._once_dtypes: tuple[torch.dtype, ...] = ()

    @property
    def offset(self) -> int:
        """Tokens held before this call: the place of the first new token."""
        return self._cache.offset

    @property
    def holds_source(self) -> bool:
        """Whether `once` has run."""
        return self._once is not None

    def extend(self, *, window: int | None = None, every: int = 1, **tensors: Tensor) -> tuple[Tensor, ...]:
        """Append (B, ..., T, width) tensors on dim -2; returns everything kept and new, in keyword order, as a tuple.

        window: only the last `window` entries stay, of which T new queries see window + T - 1 at most.
        every: there is one entry for every so many tokens, and one for those left over at most. A call may bring none;
        with n new ones its queries see window + n at most.
        Held in the cache's dtype, returned in the given one. Raises: UsageError beyond the capacity and for another
        batch size.
        """
        return tuple(self._extended(name, tensor, window, every) for name, tensor in tensors.items())

    def state(self, name: str, init: Tensor | Callable[[], Tensor]) -> Tensor:
        """A state of constant size, as the last `replace` left it; at first `init`, or what it returns."""
        if name not in self._states:
            self._states[name] = init() if callable(init) else init
        return self._states[name]

    def replace(self, **tensors: Tensor) -> None:
        """Put new values in the place of constant-size states."""
        self._states.update(tensors)

    def once(self, fn: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What fn returned the first time: keys and values of the source. Later calls do not run fn.

        A decode step has no source: its attention gets an empty context (B, 0, dim), so that `context is not None`
        still tells cross-attention from self-attention.
        """
        if self._once is None:
            fresh = tuple(fn())
            self._once_dtypes = tuple(tensor.dtype for tensor in fresh)
            self._once = tuple(tensor.to(self._cache.storage(tensor)) for tensor in fresh)
        return tuple(tensor.to(dtype) for tensor, dtype in zip(self._once, self._once_dtypes, strict=True))

    def given(self) -> dict[str, int]:
        """How many entries each name got so far."""
        return {name: entries.given for name, entries in self._entries.items()}

    def hold(self, given: Mapping[str, int]) -> None:
        """Hold so many entries of each name, whatever stands in them: see `Cache.timing_mark`."""
        for name, entries in self._entries.items():
            entries.given = given.get(name, 0)

    def written(self) -> tuple[Written, ...]:
        """What `extend` got so far, by name: how the cache grows, whatever it still holds."""
        return tuple(entries.written() for entries in self._entries.values())

    def held(self) -> CacheBytes:
        """Bytes held for this attention."""
        return CacheBytes(
            tokens=sum(entries.nbytes() for entries in self._entries.values()),
            states=sum(state.numel() * state.itemsize for state in self._states.values()),
            cross=sum(tensor.numel() * tensor.itemsize for tensor in self._once or ()),
        )

    def _extended(self, name: str, new: Tensor, window: int | None, every: int) -> Tensor:
        self._cache.check(new, every, self._entries[name].given if name in self._entries else 0)
        if name not in self._entries:
            self._entries[name] = self._room(new, window, every)
        return self._entries[name].append(new).to(new.dtype)

    def _room(self, new: Tensor, window: int | None, every: int) -> Entries:
        cache = self._cache
        return Entries(new, cache.room(every), window, every, cache.storage(new), cache.device or new.device)


class Cache:
    """The cache of a whole model: one view per attention and the number of tokens they all hold.

    dtype: of what is held (None: as computed). device: where (None: where it is computed).
    The model advances `offset` after all layers.
    """

    view: ClassVar[type[CacheView]] = CacheView

    def __init__(
        self,
        views: int,
        *,
        batch: int,
        capacity: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.batch = batch
        self.capacity = capacity
        self.dtype = dtype
        self.device = None if device is None else torch.device(device)
        self.offset = 0
        self.views = tuple(self.view(self) for _ in range(views))

    @property
    def holds_source(self) -> bool:
        """Whether cross-attention's keys and values are there, so that the encoder need not run."""
        return any(view.holds_source for view in self.views)

    def advance(self, tokens: int) -> None:
        """Count the tokens that every view now holds."""
        self.offset = self.offset + tokens

    def timing_mark(self) -> Callable[[], None]:
        """Returns what takes the cache back to how much it holds now, for timing and counting: values are not restored.

        Buffers and constant-size states keep what later steps wrote into them, so a step that is repeated costs the
        same but need not give the same numbers: those of states, and of a window after many tokens at once, differ.
        Keys and values of a source stay.
        """
        offset = self.offset
        given = [view.given() for view in self.views]

        def rewind() -> None:
            self.offset = offset
            for view, held in zip(self.views, given, strict=True):
                view.hold(held)

        return rewind

    def held(self) -> CacheBytes:
        """Bytes held for the tokens so far, by how they grow."""
        parts = [view.held() for view in self.views]
        return CacheBytes(
            tokens=sum(part.tokens for part in parts),
            states=sum(part.states for part in parts),
            cross=sum(part.cross for part in parts),
        )

    def nbytes(self) -> int:
        """All bytes held for the tokens so far."""
        return self.held().total

    def storage(self, tensor: Tensor) -> torch.dtype:
        """The dtype in which a tensor is held."""
        return tensor.dtype if self.dtype is None else self.dtype

    def room(self, every: int = 1) -> int:
        """Entries that fit where there is one for every so many tokens, and one for those left over."""
        return math.ceil(self.capacity / every)

    def admit(self, batch: int, tokens: int) -> None:
        """UsageError when a step of so many sequences and new tokens does not fit, whatever is kept of it."""
        if batch != self.batch:
            raise UsageError(f"this cache was made for batch {self.batch}, the input has {batch}")
        if self.offset + tokens > self.capacity:
            raise UsageError(
                f"this cache has room for {self.capacity} tokens: it holds {self.offset} and got {tokens} more"
            )

    def check(self, new: Tensor, every: int, given: int) -> None:
        """UsageError when new entries (B, ..., T, width) do not fit; given: entries of this name so far."""
        if every == 1:
            self.admit(new.shape[0], new.shape[-2])
        elif new.shape[0] != self.batch:
            raise UsageError(f"this cache was made for batch {self.batch}, the input has {new.shape[0]}")
        elif given + new.shape[-2] > self.room(every):
            raise UsageError(
                f"this cache has room for {self.capacity} tokens, {self.room(every)} entries of {every} tokens each: "
                f"it holds {given} and got {new.shape[-2]} more"
            )
