"""The regimes of a device: whose speed a number shows.

- `host`: the host's clock around the calls. On a CPU the host is the device.
- `throughput`: call after call, the device never waits for anything but the next launch. Where the host launches more
  slowly than the device runs, the gaps count.
- `device`: a CUDA graph that holds the calls, replayed. The host launches once for all of them, so no gap is left.
- `latency`: one call, from an idle device until it is idle again: launching and running together.

The first regime of a device is its headline. throughput / device above 1.2 means that launching is what takes the time.

CUDA as torch's documentation describes events, streams and graphs (https://docs.pytorch.org/docs/stable/notes/cuda.html).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from explorer.errors import is_out_of_memory
from explorer.latency.clock import Call, Clock, CudaEventClock, PerfCounterClock, SingleCallClock
from explorer.latency.failure import CaptureLost
from explorer.latency.protocol import Timed
from explorer.latency.statistics import is_valid

_TRIED = ("cpu", "cuda")

# Steps in one graph: a replay is one launch of some microseconds, which they share. Fewer where they take this long.
_STEPS_IN_GRAPH = 32
_GRAPH_MS = 5.0
_STEPS_BEFORE_CAPTURE = 3
# Overwriting the caches takes much longer than most calls.
_MOST_FLUSHES = 10


@dataclass(frozen=True)
class Prepared:
    """What a regime calls: `call` runs `each` steps, and every copy of the weights is touched in `turn` calls."""

    call: Call
    each: int
    turn: int


@dataclass(frozen=True)
class Regime:
    """One way of timing. `prepare(steps, single)` makes one call of the steps of all copies; single: of one step."""

    name: str
    clock: Clock
    prepare: Callable[[Sequence[Call], bool], Prepared]

    def timed(self, steps: Sequence[Call], flush: Callable[[], object] | None = None) -> Timed:
        """A lane over the steps of all copies. flush: runs before every timed call, outside the time.

        What a regime cannot prepare (a step that no graph can hold) raises.
        """
        ready = self.prepare(steps, flush is not None)
        if flush is None:
            return Timed(ready.call, self.clock, ready.each, ready.turn)
        clock = SingleCallClock(self.clock, before=flush)
        return Timed(ready.call, clock, ready.each, ready.turn, most=_MOST_FLUSHES, rehearsal=self.clock)


def regimes_for(device: str) -> tuple[Regime, ...]:
    """The regimes of a device as `resolve_device` gives it, the headline first."""
    import torch

    kind = torch.device(device).type
    if kind == "cpu":
        return (Regime("host", PerfCounterClock(), in_turn),)
    waiting = PerfCounterClock(synchronize=partial(torch.accelerator.synchronize, device))
    latency = Regime("latency", SingleCallClock(waiting), in_turn)
    if kind != "cuda":
        return (Regime("throughput", waiting, in_turn), latency)
    events = CudaEventClock(
        event=lambda: torch.cuda.Event(enable_timing=True), stream=partial(torch.cuda.current_stream, device)
    )
    return (
        Regime("throughput", events, in_turn),
        Regime("device", events, partial(in_a_graph, device=device, clock=events)),
        latency,
    )


def regime_notes(device: str, regime: str, cache: str) -> tuple[str, ...]:
    """What a reader must know of a number of a device beside its regime."""
    import torch

    kind = torch.device(device).type
    notes = [] if kind in _TRIED else [f"untested: nobody has yet checked what is measured on {kind}"]
    if kind == "cuda" and regime == "throughput" and cache == "cold":
        notes.append("launches hide behind the overwriting of the cache")
    return tuple(notes)


def in_turn(steps: Sequence[Call], single: bool = False) -> Prepared:
    """One step a call, the copies one after the other."""
    turn = itertools.cycle(steps)
    return Prepared(lambda: next(turn)(), each=1, turn=len(steps))


def in_a_graph(steps: Sequence[Call], single: bool = False, *, device: str, clock: Clock) -> Prepared:
    """A CUDA graph of the steps of all copies, as often as some milliseconds take.

    Raises what a step raises that waits for the device, which no graph can hold; CaptureLost where capturing fails.
    """
    import torch

    here = torch.cuda.current_stream(device)
    side = _side_stream(here.device_index)
    # The outer `stream(here)`: after a capture that failed, torch leaves the side stream as the current one.
    with torch.cuda.device(device), torch.cuda.stream(here):
        side.wait_stream(here)
        with torch.cuda.stream(side):
            pass_ms = _rehearsed(steps, clock)
        here.wait_stream(side)
        rounds = 1 if single else _rounds(len(steps), pass_ms)
        return Prepared(_captured(steps, rounds, side), each=rounds * len(steps), turn=1)


@cache
def _side_stream(device_index: int) -> Any:
    """One for all graphs of a device: for each stream cuBLAS keeps a workspace until the process ends."""
    import torch

    return torch.cuda.Stream(device_index)


def _rounds(steps: int, pass_ms: float) -> int:
    """How often all steps go into one graph. Called one by one they take longer than there, where nothing launches."""
    most = math.ceil(_STEPS_IN_GRAPH / steps)
    return min(most, math.ceil(_GRAPH_MS / pass_ms)) if is_valid(pass_ms) else most


@dataclass(frozen=True)
class _Replay:
    """A captured graph, with the steps whose tensors it reads: it holds only their addresses."""

    graph: Any
    steps: Sequence[Call]

    def __call__(self) -> None:
        self.graph.replay()


def _rehearsed(steps: Sequence[Call], clock: Clock) -> float:
    """Milliseconds of all steps once, after they have allocated and tuned on the stream of the capture.

    The last time they must not wait for the device: torch names the operation that does, and nothing is broken by it.
    """
    _run(steps, _STEPS_BEFORE_CAPTURE - 2)
    pass_ms = clock.time(partial(_run, steps, 1), 1)
    with _refusing_to_wait():
        _run(steps, 1)
    return pass_ms


@contextmanager
def _refusing_to_wait() -> Iterator[None]:
    """What waits for the device raises."""
    import torch

    before = torch.cuda.get_sync_debug_mode()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once that it does not see every operation that waits
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _captured(steps: Sequence[Call], rounds: int, side: Any) -> Call:
    """Replays `rounds` times every step. Raises CaptureLost where it fails for want of anything but memory."""
    import torch

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, stream=side):
            _run(steps, rounds)
    except Exception as error:  # whatever a step raises
        if is_out_of_memory(error):
            raise
        raise CaptureLost(f"no CUDA graph holds it: {type(error).__name__}: {_first_line(error)}") from error
    return _Replay(graph, steps)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _run(steps: Sequence[Call], rounds: int) -> None:
    for _ in range(rounds):
        for step in steps:
            step()
