"""What was measured is found again, also after an interruption in the middle of a line."""

import pytest

from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.latency.store import Store
from tests.latency.jobs import job, recipe

TRACK = Track(Lane("a", "eager", "host"), (1.5, None), first_call_ms=9.0, warmup=4, calls=2, notes=("warm: why",))
PROCESS = Process(0, (TRACK,), (None, "a burst"), "a guard", {"threads": 1}, {"a": {"eager": {"sdpa": ["math"]}}})
FAILED = Failed("b", "its process exited with code 9", details="Fatal\nerror")


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "measurements.jsonl")


def test_nothing_is_kept_at_first(store):
    assert store.finished(job()) == []


def test_records_come_back_in_order(store):
    for found in (PROCESS, FAILED):
        store.add(job(), found)
    assert store.finished(job()) == [PROCESS, FAILED]


def test_a_job_finds_only_its_own(store):
    store.add(job(), PROCESS)
    store.add(job(recipe("b")), FAILED)
    assert store.finished(job()) == [PROCESS]


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_cut_last_line_is_no_record_and_spoils_no_other(store, cut):
    store.add(job(), FAILED)
    store.add(job(), PROCESS)
    store.path.write_bytes(store.path.read_bytes()[:-cut])
    assert store.finished(job()) == ([FAILED] if cut > 1 else [FAILED, PROCESS])
    store.add(job(), PROCESS)
    assert store.finished(job())[-1] == PROCESS
    assert store.finished(job())[0] == FAILED


def test_lines_of_others_are_let_be(store):
    store.path.write_text('[1]\n\n{"job": "another", "note": 1}\nnot json\n')
    store.add(job(), PROCESS)
    assert store.finished(job()) == [PROCESS]
