"""Candidates made ready on the device, in every implementation and in as many copies as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from explorer.errors import MeasureError
from explorer.latency.clock import Call, Clock
from explorer.latency.failure import Failure, attempt
from explorer.latency.implementation import Implemented, implement
from explorer.latency.memory import free_bytes
from explorer.latency.raw import Failed
from explorer.latency.runner import Step
from explorer.latency.temperature import Room, Temperature, temperature


@dataclass(frozen=True)
class Candidate:
    """Something to time. `build()` makes it ready on the device.

    least_bytes: what it is known to need there (weights, cache): a candidate that cannot fit is not tried. On a CPU
    trying would not raise: the system would end the whole process. touched_bytes: what one call reads of its weights
    and cache, None for all.
    """

    key: str
    build: Callable[[], Step]
    least_bytes: int = 0
    touched_bytes: int | None = None


@dataclass(frozen=True)
class Surroundings:
    """Where candidates are made ready: on which device, with how much room, in which cache mode and implementations."""

    device: str
    room: Room
    cache: str
    impls: tuple[str, ...]
    clock: Clock


@dataclass(frozen=True)
class Arm:
    """A candidate in one implementation: a call for each copy of its weights. step: on the first of them."""

    candidate: Candidate
    impl: str
    step: Step
    calls: tuple[Call, ...]
    implemented: Implemented | None
    temperature: Temperature
    first_call_ms: float


def arms_of(candidate: Candidate, at: Surroundings) -> Iterator[Arm | Failed]:
    """The candidate in every implementation, or why there is none of it."""
    copied = attempt(partial(_copied, candidate, at), "building")
    if isinstance(copied, Failure):
        yield copied.of(candidate.key)
        return
    steps, warmth = copied
    for impl in at.impls:
        arm = attempt(partial(_arm, candidate, impl, steps, warmth, at.clock), "calling it the first time")
        yield arm.of(candidate.key, impl) if isinstance(arm, Failure) else arm


def built(candidate: Candidate, device: str) -> Step:
    """The candidate on the device. Raises MemoryError where it is known not to fit, and whatever building raises."""
    _check_room(candidate.least_bytes, device)
    return candidate.build()


def _copied(candidate: Candidate, at: Surroundings) -> tuple[list[Step], Temperature]:
    step = built(candidate, at.device)
    warmth = temperature(at.cache, step.phase, step.nbytes, at.room, touched=candidate.touched_bytes)
    if warmth.copies == 1:
        return [step], warmth
    _check_room((warmth.copies - 1) * step.nbytes, at.device)
    copies = attempt(lambda: [step.copied() for _ in range(warmth.copies - 1)], "copying")
    if not isinstance(copies, Failure):
        return [step, *copies], warmth
    if copies.out_of_memory:
        raise MemoryError(copies.reason)
    return [step], Temperature(notes=(f"warm: its weights cannot be copied: {copies.reason}",))


def _arm(candidate: Candidate, impl: str, steps: Sequence[Step], warmth: Temperature, clock: Clock) -> Arm:
    calls, implemented = _calls(steps, impl)
    return Arm(candidate, impl, steps[0], calls, implemented, warmth, clock.time(calls[0], 1))


def _calls(steps: Sequence[Step], impl: str) -> tuple[tuple[Call, ...], Implemented | None]:
    modules = [step.module for step in steps]
    first = modules[0]
    if first is None:
        if impl != "eager":
            raise MeasureError(f"not measured with {impl}: it is a function and no module")
        return tuple(step.through(no_module) for step in steps), None
    implemented = implement(first, impl)
    forwards = [implemented.call, *(implemented.of_copy(module) for module in modules[1:] if module is not None)]
    return tuple(step.through(forward) for step, forward in zip(steps, forwards, strict=True)), implemented


def no_module(*_: object) -> NoReturn:
    raise AssertionError("a bare function runs through no module")


def _check_room(size: int, device: str) -> None:
    free = free_bytes(device)
    if free is not None and size > free:
        raise MemoryError(f"at least {_gib(size)} needed, {_gib(free)} free on {device}")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
