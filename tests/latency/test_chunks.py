"""Candidates that do not fit in memory together: groups, each with the anchors, and second tries."""

import weakref

import pytest
import torch

from explorer.latency.chunks import chunks, in_chunks
from explorer.latency.measure import measure
from explorer.latency.raw import Failed, Process
from tests.latency.virtual import ScriptedGuard, bare


def beside(*keys, base=("base",)):
    """Every candidate needs the baseline, or what is given in its place."""
    return {key: frozenset(base) - {key} for key in keys}


CONTROL = ("base", "base~")


@pytest.mark.parametrize(
    ("sizes", "base", "free", "groups"),
    [
        ({}, (), 10, []),
        ({"base": 1, "base~": 1}, CONTROL, 10, [["base", "base~"]]),
        ({"base": 1, "a": 3, "b": 3, "base~": 1}, CONTROL, 10, [["base", "a", "b", "base~"]]),  # 8 of 10
        ({"base": 1, "a": 3, "b": 4, "base~": 1}, CONTROL, 10, [["base", "a", "base~"], ["base", "b", "base~"]]),
        ({"a": 3, "b": 3, "c": 3}, (), 10, [["a", "b"], ["c"]]),
        ({"a": 3, "b": 3, "c": 3}, (), None, [["a", "b", "c"]]),
        ({"base": 1, "a": 3, "huge": 11, "b": 3}, ("base",), 10, [["base", "a", "huge", "b"]]),
        ({"base": 1, "a": 3, "large": 9}, ("base",), 10, [["base", "a"], ["base", "large"]]),
    ],
)
def test_groups_fit_and_have_what_each_candidate_needs(sizes, base, free, groups):
    assert chunks(sizes, beside(*sizes, base=base), free) == groups


def test_a_candidate_brings_its_own_baseline():
    sizes = {"left": 2, "a": 2, "right": 2, "b": 2}
    needs = {"left": frozenset(), "a": frozenset({"left"}), "right": frozenset(), "b": frozenset({"right"})}
    assert chunks(sizes, needs, 8) == [["left", "a", "right"], ["right", "b"]]


class Memory:
    """A device with room for so many bytes; a block keeps its own until it is let go."""

    def __init__(self, size):
        self.size = size
        self.held = []

    def free(self):
        alive = [block for block in (ref() for ref in self.held) if block is not None]
        return self.size - sum(block.size for block in alive)

    def candidate(self, key, time, size, running=0):
        def make():
            block = Block(self, size, running, time)
            self.held.append(weakref.ref(block))
            return block

        return bare(key, make)


class Block:
    def __init__(self, memory, size, running, time):
        if size > memory.free():
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self.memory, self.size, self.running, self.time = memory, size, running, time

    def __call__(self):
        if self.running > self.memory.free():
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {self.running} bytes.")
        self.time.sleep(5)


def run(time, effort, memory, always=("base",), **needs):
    """The candidates of each record, and those that failed in the end. needs: bytes, and those while running."""
    sizes = {key: need if isinstance(need, tuple) else (need,) for key, need in needs.items()}
    candidates = {key: memory.candidate(key, time, *need) for key, need in sizes.items()}

    def group(keys):
        chosen = [candidates[key] for key in keys]
        return measure(chosen, device="cpu", effort=effort, regimes=time.regimes(), guard=ScriptedGuard())

    found = list(in_chunks(dict.fromkeys(needs, 0), beside(*needs, base=always), None, group))
    measured = [[track.lane.candidate for track in process.tracks] for process in found]
    failed = [failed.candidate for process in found for failed in process.failed]
    return measured, failed


def test_what_does_not_fit_beside_the_others_is_measured_beside_the_anchors(time, effort):
    """Sizes that nobody knew: three of 4 bytes do not fit in 10."""
    memory = Memory(10)
    measured, failed = run(time, effort, memory, base=1, a=4, b=4, c=4, huge=12)
    assert failed == ["huge"]
    assert all(keys[0] == "base" for keys in measured)
    assert sorted(key for keys in measured for key in keys if key != "base") == ["a", "b", "c"]
    assert memory.free() == 10


def test_memory_for_running_counts_too(time, effort):
    memory = Memory(10)
    measured, failed = run(time, effort, memory, always=(), a=2, crowded=(2, 8), never=(2, 9))
    assert (measured, failed) == ([["a"], ["crowded"], []], ["never"])


def test_an_anchor_that_runs_out_beside_others_is_measured_again_with_each(time, effort):
    memory = Memory(10)
    measured, failed = run(time, effort, memory, base=(2, 5), a=3, b=3)
    assert (measured, failed) == ([["base", "a"], ["base", "b"]], [])


def test_one_alone_is_not_tried_again(time, effort):
    assert run(time, effort, Memory(10), always=(), a=12) == ([[]], ["a"])


def test_what_is_known_not_to_fit_is_not_tried_again():
    asked, sizes = [], {"base": 1, "a": 1, "huge": 20}

    def group(keys):
        asked.append(keys)
        return Process(0, (), (), "a guard", failed=(Failed("huge", "at least 20 needed", out_of_memory=True),))

    assert len(list(in_chunks(sizes, beside(*sizes), 10, group))) == 1
    assert asked == [["base", "a", "huge"]]
