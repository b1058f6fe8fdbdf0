"""Whether a block finds its weights in the cache when it is timed.

A block that runs again and again has its weights in the last-level cache if they fit; in a model, whose layers run one
after the other, they come from the memory. One block on its own was up to 3.4 times too fast in decode (MHA, one token,
width 768, 2 threads of a Zen 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from explorer.latency.words import known

MODES = ("auto", "warm", "rotate", "flush")
"""auto: rotate for decode, else warm. warm: one copy, called again and again. rotate: copies of the weights in turn.
flush: all caches are overwritten before each call."""

WARM, COLD_WEIGHTS, COLD = "warm", "cold weights", "cold"

_TIMES_THE_CACHE = 4
_MOST_COPIES = 64
_SHARE_FOR_COPIES = 0.25


@dataclass(frozen=True)
class Room:
    """What a device has: bytes of its last-level cache and free bytes, None where it does not say."""

    last_cache: int | None
    free: int | None


@dataclass(frozen=True)
class Temperature:
    """How one candidate is timed. cache: what its numbers are (WARM, COLD_WEIGHTS, COLD). notes: why not as asked."""

    cache: str = WARM
    copies: int = 1
    notes: tuple[str, ...] = ()


def temperature(mode: str, phase: str, size: int, room: Room, *, touched: int | None = None) -> Temperature:
    """How a candidate is timed whose weights and cache are `size` bytes, `touched` of them in a call (None: all).

    Rotating takes as many copies as touch at least 4 times the last-level cache; where that is more than 64 copies or
    a quarter of the free memory, the candidate stays warm. Raises UsageError for an unknown mode.
    """
    wanted = _wanted(mode, phase)
    if wanted == "warm":
        return Temperature()
    if room.last_cache is None:
        return _warm("the size of the last-level cache of this device is not known")
    least = _TIMES_THE_CACHE * room.last_cache
    if wanted == "flush":
        return Temperature(COLD) if _fits(least, room) else _warm(f"{_caches(room.last_cache)} do not fit in memory")
    if not size:
        return _warm("it has no weights of its own")
    copies = math.ceil(least / max(1, size if touched is None else min(touched, size)))
    if copies > _MOST_COPIES:
        return _warm(f"{_caches(room.last_cache)} need {copies} copies of the weights, more than {_MOST_COPIES}")
    if not _fits((copies - 1) * size, room):
        return _warm(f"{_caches(room.last_cache)} need {copies} copies of the weights, which do not fit in memory")
    return Temperature(COLD_WEIGHTS, copies)


def flusher(device: str, last_cache: int) -> Callable[[], object]:
    """What pushes everything else out of the caches of a device, by reading and writing 4 times the last of them.

    Not by filling with a constant, which on CPUs may go past the cache.
    """
    import torch

    words = torch.zeros(_TIMES_THE_CACHE * last_cache // 8, dtype=torch.int64, device=device)
    return words.bitwise_not_


def _wanted(mode: str, phase: str) -> str:
    if known("cache mode", mode, MODES) == "auto":
        return "rotate" if phase == "decode" else "warm"
    return mode


def _fits(size: int, room: Room) -> bool:
    return room.free is None or size <= room.free * _SHARE_FOR_COPIES


def _warm(why: str) -> Temperature:
    return Temperature(notes=(f"warm: {why}",))


def _caches(size: int) -> str:
    return f"{_TIMES_THE_CACHE} x {size / 2**20:.0f} MiB of last-level cache"
