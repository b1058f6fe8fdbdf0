"""Verdicts on simulated machines whose truth is known: how often they are wrong, and how often they say something.

A machine runs a baseline, its clone and a candidate in the protocol's own rounds, in virtual time. Every sample has its
own jitter, all drift together, and a competitor that switches on and off makes samples longer by a factor of their own.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from explorer.latency.comparison import compare
from explorer.latency.effort import EFFORTS
from explorer.latency.protocol import Timed, Warm, interleave
from explorer.latency.raw import Lane, Process, Track
from explorer.latency.verdict import ONE_PROCESS
from tests.latency.virtual import VirtualTime

BASE, CLONE, OTHER = (Lane(key, "eager", "host") for key in ("base", "base~", "other"))
BASELINES = {"base": None, "base~": "base", "other": "base"}
QUICK = EFFORTS["quick"]
RUNS = 40


@dataclass(frozen=True)
class Machine:
    """jitter: standard deviation of each sample's log. drift: share per second. bursts: whether there is a competitor.
    seen: the chance that the guard notices a disturbed sample. sample_ms: length of a sample of the baseline. off:
    standard deviation of the log of what a lane is off in all of a process, such as for where its memory lies.
    """

    jitter: tuple[float, float] = (0.01, 0.03)
    drift: float = 0.0
    bursts: bool = False
    seen: float = 0.0
    sample_ms: float = 20.0
    off: float = 0.0

    def process(self, factor, rng, effort=QUICK):
        """A process in which the candidate takes `factor` times as long as the baseline."""
        running = Running(self, rng)
        factors = {BASE: 1, CLONE: 1, OTHER: factor}
        if self.off:
            factors = {lane: factor * math.exp(rng.gauss(0, self.off)) for lane, factor in factors.items()}
        lanes = {lane: Warm(Timed(running.sample(factor), running.clock()), 3, 1) for lane, factor in factors.items()}
        rounds = interleave(lanes, effort, rng, running, running.pause, BASELINES)
        tracks = tuple(
            Track(lane, times, 9.0, 3, 1, disturbed=rounds.disturbed[lane]) for lane, times in rounds.times_ms.items()
        )
        return Process(rng.random(), tracks, rounds.rounds, running.name)

    def verdict(self, factor, rng, effort=QUICK, between=0.0):
        """`between`: standard deviation of the candidate's log from process to process."""
        factors = [factor * math.exp(rng.gauss(0, between)) for _ in range(effort.processes)]
        return compare([self.process(one, rng, effort) for one in factors], BASE, [OTHER], CLONE).verdicts[OTHER]

    def words(self, factor, seed, runs=RUNS, **options):
        """How often each word is said."""
        rng = random.Random(seed)
        return Counter(self.verdict(factor, rng, **options).word for _ in range(runs))


class Running(VirtualTime):
    """A machine while it runs, and the guard that watches it."""

    name = "simulated"

    def __init__(self, machine, rng):
        super().__init__()
        self.machine, self.rng = machine, rng
        self.jitter = rng.uniform(*machine.jitter)
        self.competitor = Competitor(rng, machine.bursts)

    def sample(self, factor):
        def call():
            slow = self.competitor.slowdown(1000 * self.seconds)
            self.hit = slow > 1
            level = self.machine.sample_ms * factor * (1 + self.machine.drift * self.seconds)
            self.sleep(level * math.exp(self.rng.gauss(0, self.jitter)) * slow)

        return call

    def pause(self, progress):
        """What goes on between samples takes a tenth of their time."""
        self.sleep(0.1 * self.machine.sample_ms)

    def start(self):
        self.hit = False

    def stop(self):
        return "bursts" if self.hit and self.rng.random() < self.machine.seen else None


class Competitor:
    """Another process, on for 0.5 to 4 s and off for as long; where there is none it never begins."""

    def __init__(self, rng, there):
        self.rng = rng
        self.on, self.until = there and rng.random() < 0.5, rng.uniform(0, 4000) if there else math.inf

    def slowdown(self, ms):
        while ms > self.until:
            self.on, self.until = not self.on, self.until + self.rng.uniform(500, 4000)
        return self.rng.uniform(1.2, 2.6) if self.on else 1.0


MACHINES = {
    "quiet": Machine(),
    "drift": Machine(drift=0.1),
    "bursts seen": Machine(bursts=True, seen=0.97),
    "bursts unseen": Machine(bursts=True),
    "bursts unseen, long samples": Machine(bursts=True, sample_ms=65),
    "lanes off by 1 %": Machine(off=0.01),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("seed", [1, 2])
def test_equal_ones_are_hardly_ever_called_faster_or_slower(name, seed):
    words = MACHINES[name].words(1.0, seed)
    assert words["faster"] + words["slower"] <= 2
    assert words["tie"] > 0


@pytest.mark.parametrize("name", ["quiet", "drift"])
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_percent_slower_is_slower(name, seed):
    assert MACHINES[name].words(1.1, seed)["slower"] >= 38


def test_ten_percent_faster_is_faster():
    assert MACHINES["quiet"].words(1 / 1.1, 1)["faster"] >= 38


def test_bursts_that_are_seen_leave_a_verdict_or_contention():
    words = MACHINES["bursts seen"].words(1.1, 1)
    assert words["slower"] + words["contended"] >= 38
    assert words["slower"] >= 30
    assert words["contended"] > 0


def test_bursts_that_are_not_seen_never_turn_a_verdict_round():
    words = MACHINES["bursts unseen"].words(1.1, 1)
    assert words["faster"] == 0
    assert words["slower"] >= 30


@pytest.mark.parametrize("word", ["default", "publish"])
def test_several_processes(word):
    options = {"effort": EFFORTS[word], "between": 0.005}
    equal, slower = (MACHINES["quiet"].words(factor, 1, **options) for factor in (1.0, 1.1))
    assert equal["faster"] + equal["slower"] == 0
    assert equal["tie"] >= 20
    assert slower["slower"] >= 38


def test_a_spread_between_processes_is_seen_only_by_several():
    """What one process takes for a difference of 10 % is 0 to 20 %: hence the label."""
    machine, rng = Machine(jitter=(0.005, 0.005)), random.Random(1)
    one = [machine.verdict(1.1, rng, between=0.1) for _ in range(RUNS)]
    assert all(verdict.reason.endswith(ONE_PROCESS) for verdict in one)
    five = [machine.verdict(1.1, rng, EFFORTS["publish"], between=0.1) for _ in range(RUNS)]
    widths = [sum(verdict.ratio.high / verdict.ratio.low for verdict in found) / RUNS for found in (one, five)]
    assert widths[0] < 1.02
    assert widths[1] > 1.15


EXACT = Machine(jitter=(0.0, 0.0))


@pytest.mark.parametrize(
    ("machine", "factor", "word"),
    [
        (EXACT, 1.0, "tie"),
        (EXACT, 1.1, "slower"),
        (EXACT, 1 / 1.1, "faster"),
        (EXACT, 1.02, "tie"),
        (Machine(jitter=(0.001, 0.001), drift=1.0), 1.1, "slower"),  # what drifts within a round is order, not speed
    ],
)
def test_without_jitter_the_truth_is_told(machine, factor, word):
    verdict = machine.verdict(factor, random.Random(0))
    assert verdict.word == word
    if machine is EXACT:
        assert verdict.ratio.value == pytest.approx(factor)


def test_one_round_says_nothing():
    verdict = EXACT.verdict(2.0, random.Random(0), replace(QUICK, rounds=1))
    assert (verdict.word, verdict.reason.split(";")[0]) == ("unclear", "too few clean rounds for an interval: 1")


def test_all_rounds_disturbed_is_contended():
    tracks = tuple(Track(lane, (20.0,) * 10, 9.0, 3, 1) for lane in (BASE, CLONE, OTHER))
    verdict = compare([Process(0, tracks, ("bursts",) * 10, "simulated")], BASE, [OTHER], CLONE).verdicts[OTHER]
    assert (verdict.word, verdict.ratio) == ("contended", None)
    assert verdict.reason == "too few clean rounds: 0, beside 10 disturbed ones, most often by bursts"


def test_no_valid_reading_has_a_reason():
    """Public case C8: a filter that drops every sample."""
    tracks = tuple(Track(lane, (None,) * 10, 9.0, 3, 1) for lane in (BASE, CLONE, OTHER))
    verdict = compare([Process(0, tracks, (None,) * 10, "simulated")], BASE, [OTHER], CLONE).verdicts[OTHER]
    assert (verdict.word, verdict.reason) == ("unclear", "there is no round in which both were timed")
