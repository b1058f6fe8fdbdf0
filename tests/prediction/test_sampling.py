"""Sampling: what was disturbed does not count, and what can be had in the time is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from explorer.errors import MeasureError
from explorer.latency.clock import PerfCounterClock
from explorer.latency.protocol import Timed
from explorer.prediction.sampling import Lane, Plan, regimes, sample


@dataclass
class World:
    """Time passes when a call says so; while `busy` somebody else runs and every call takes three times as long."""

    seconds: float = 0.0
    busy: bool = False
    calls: list[str] = field(default_factory=list)

    def lane(self, name: str, ms: float, sample_ms: float = 4.0) -> Lane:
        def call() -> None:
            self.calls.append(name)
            self.seconds += ms * (3 if self.busy else 1) / 1e3

        return Lane(Timed(call, PerfCounterClock(now=lambda: self.seconds)), sample_ms)

    def now(self) -> float:
        return self.seconds


@dataclass
class Switching:
    """Somebody else runs in all samples but every `every`-th; `honest`: the guard sees it."""

    world: World
    every: int
    honest: bool = True
    started: int = 0
    name = "a virtual guard"

    def start(self) -> None:
        self.started += 1
        self.world.busy = self.started % self.every != 0

    def stop(self) -> str | None:
        busy, self.world.busy = self.world.busy, False
        return "somebody else ran" if busy and self.honest else None


def plan(world: World, **more: float) -> Plan:
    return Plan(now=world.now, **{"clean": 4, "clean_long": 2, "rounds": 30, "seconds": 1e9, **more})  # type: ignore[arg-type]


def taken(world: World, every: int, honest: bool = True, **more: float) -> tuple[dict[str, float], float]:
    lanes = {"short": world.lane("short", 0.5), "long": world.lane("long", 50.0)}
    found = sample(lanes, Switching(world, every, honest), random.Random(0), plan(world, **more))
    return dict(found.ms), found.clean


def test_a_quiet_machine_gives_what_calls_take() -> None:
    ms, clean = taken(World(), every=1)
    assert ms == {"short": pytest.approx(0.5), "long": pytest.approx(50.0)}
    assert clean == 1.0


@pytest.mark.parametrize("every", [2, 3, 5])
def test_disturbed_samples_do_not_count(every: int) -> None:
    ms, clean = taken(World(), every=every)
    assert ms == {"short": pytest.approx(0.5), "long": pytest.approx(50.0)}
    assert clean < 0.8


def test_where_nothing_is_clean_the_quickest_tenth_counts() -> None:
    ms, clean = taken(World(), every=10**6)
    assert ms == {"short": pytest.approx(1.5), "long": pytest.approx(150.0)}
    assert clean == 0.0


def test_a_long_call_is_a_sample_and_short_ones_fill_one() -> None:
    world = World()
    taken(world, every=1)
    # Three to warm up; then 4 rounds of one call before and 8 in the sample, and 2 rounds of one.
    assert world.calls.count("short") == 3 + 4 * (1 + 8)
    assert world.calls.count("long") == 3 + 2


def test_the_order_changes_from_round_to_round() -> None:
    world = World()
    lanes = {name: world.lane(name, 10.0) for name in "abc"}
    sample(lanes, Switching(world, 1), random.Random(1), plan(world, clean_long=8))
    rounds = [tuple(world.calls[start : start + 3]) for start in range(9, len(world.calls), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 2


def test_time_ends_it_after_some_rounds() -> None:
    """0.1 s are over in the second round; three rounds there are in any case."""
    world = World()
    sample({"a": world.lane("a", 60.0)}, Switching(world, 10**6), random.Random(0), plan(world, seconds=0.1))
    assert world.calls.count("a") == 3 + 3


def test_progress_is_told() -> None:
    world, told = World(), []
    sample(
        {"a": world.lane("a", 9.0)}, Switching(world, 1), random.Random(0), plan(world), lambda *step: told.append(step)
    )
    assert told[0] == ("warming up", 0, 1)
    assert ("measuring", 1, 30) in told


def test_a_clock_that_stands_still_is_told() -> None:
    still = Lane(Timed(lambda: None, PerfCounterClock(now=lambda: 1.0)))
    with pytest.raises(MeasureError, match="a: no valid sample: all readings were zero, negative or not finite"):
        sample({"a": still}, Switching(World(), 1), random.Random(0), Plan(rounds=2))


@pytest.mark.parametrize(("device", "kernels", "passes"), [("cpu", "host", "host"), ("cuda:0", "device", "throughput")])
def test_kernels_are_timed_without_their_launch_where_that_is_possible(device: str, kernels: str, passes: str) -> None:
    found = regimes(device)
    assert (found.kernels.name, found.passes.name, found.on_host) == (kernels, passes, device == "cpu")
