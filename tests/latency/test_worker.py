"""Real worker processes with components that misbehave: each costs itself and nobody else."""

import os
from dataclasses import replace

import pytest

from explorer.latency.crew import measure_job
from explorer.latency.effort import Effort
from explorer.latency.raw import Failed, Process
from explorer.latency.recipe import Recipe
from explorer.latency.spawned import spawned
from tests.latency.jobs import PREFILL, job

PLUGIN = '''
"""Norms that misbehave when they are called: each from the call of a number on."""

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from explorer import hookimpl
from explorer.latency.failure import DeviceLost


class Misbehaves(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.misbehave()
        return x * self.scale


class Prints(Misbehaves):
    def misbehave(self):
        if self.calls == 1:
            print("a line of a plugin", flush=True)
            os.write(1, b"a line below Python\\n")
            Path(__file__).with_name("pid").write_text(str(os.getpid()))


class Raises(Misbehaves):
    def misbehave(self):
        raise ValueError("odd")


class Exits(Misbehaves):
    def misbehave(self):
        if self.calls > 8:
            os._exit(9)


class Hangs(Misbehaves):
    def misbehave(self):
        if self.calls > 8:
            time.sleep(600)


class Greedy(Misbehaves):
    def misbehave(self):
        torch.empty(2**50)


class Loses(Misbehaves):
    def misbehave(self):
        raise DeviceLost("an illegal access")


class Leaves(Misbehaves):
    def misbehave(self):
        sys.exit(3)


@hookimpl
def register_norms():
    kinds = (Prints, Raises, Exits, Hangs, Greedy, Loses, Leaves)
    return {kind.__name__.lower(): kind for kind in kinds}
'''
EFFORT = Effort(
    rounds=3,
    fewest_rounds=3,
    most_rounds=6,
    sample_ms=0.1,
    warm_ms=1,
    warm_limit_ms=20,
    budget_ms=500,
    processes=2,
    hang_s=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "misbehaving.py").write_text(PLUGIN)
    return folder


def made(folder, *norms, **options):
    """A job of blocks with these norms, the first one the baseline. The plugin is only where the job says."""
    recipes = [Recipe(norm, {"dim": 16, "heads": 2, "norm": norm}, "block", vars(PREFILL)) for norm in norms]
    options = {"effort": EFFORT, "modules": ["misbehaving"], **options}
    made = job(*recipes, baseline=norms[0], **options)
    return replace(made, path=(*made.path, str(folder)))


@pytest.fixture(scope="module")
def found(folder):
    norms = ("prints", "raises", "exits", "hangs", "greedy", "loses", "leaves", "layernorm")
    return list(measure_job(replace(made(folder, *norms, seed=7), threads=2)))


@pytest.fixture(scope="module")
def reasons(found):
    polite = [one for process in found if isinstance(process, Process) for one in process.failed]
    return {one.candidate: one for one in (*found, *polite) if isinstance(one, Failed)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ("raises", "ValueError while calling it the first time: odd"),
        ("exits", "its process exited with code 9 while "),
        ("hangs", "no sign of life for 4 s while "),
        ("greedy", "out of memory while calling it the first time"),
        ("loses", "an illegal access while building"),
        ("leaves", "its process exited with code 3 while building"),
    ],
)
def test_a_candidate_that_misbehaves_has_its_reason(reasons, candidate, reason):
    assert reasons[candidate].reason.startswith(reason)
    assert reasons[candidate].out_of_memory is (candidate == "greedy")


@pytest.mark.slow
def test_no_other_candidate_is_hurt(found, reasons):
    assert set(reasons) == {"raises", "exits", "hangs", "greedy", "loses", "leaves"}
    records = [one for one in found if isinstance(one, Process)]
    assert [one.seed for one in records] == [7, 7, 8]  # out of memory beside others is tried again beside the baseline
    measured = [[track.lane.candidate for track in one.tracks] for one in records]
    every = ["prints", "layernorm", "prints~"]
    assert measured == [every, ["prints", "prints~"], every]
    assert all(len(track.times_ms) == len(one.disturbed) >= 3 for one in records for track in one.tracks)


@pytest.mark.slow
def test_the_threads_are_those_of_the_job(found):
    """Public case C7."""
    assert {one.environment["threads"] for one in found if isinstance(one, Process)} == {2}


@pytest.mark.slow
def test_a_worker_is_gone_when_its_reader_is_interrupted(folder):
    """A Ctrl-C reaches the parent alone, wherever it stands."""

    def interrupt(progress):
        if progress.stage == "measuring":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(measure_job(made(folder, "prints"), on_progress=interrupt))
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_job_that_cannot_be_measured_says_why(folder):
    with pytest.raises(Exception, match="a measuring process failed: UsageError: -p missing: no module is called that"):
        list(measure_job(made(folder, "prints", modules=["missing"])))


@pytest.mark.slow
def test_a_worker_takes_no_module_of_its_folder_for_one_of_the_library(folder, monkeypatch):
    (folder / "random.py").write_text("raise RuntimeError('not this one')")
    monkeypatch.chdir(folder)
    try:
        with spawned(made(folder, "prints")) as worker:
            assert next(worker.messages())["event"] == "progress"
    finally:
        (folder / "random.py").unlink()
