"""Workers that end early, as the parent sees them: who is blamed, what is repeated, what is kept. No real process."""

from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

from explorer.errors import MeasureError
from explorer.latency import crew
from explorer.latency.crew import measure_job
from explorer.latency.effort import EFFORTS
from explorer.latency.protocol import Progress
from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.latency.spawned import Lost
from explorer.latency.store import Store
from tests.latency.jobs import job, recipe

JOB = job(recipe("base"), recipe("a"), recipe("b"), baseline="base", effort=replace(EFFORTS["quick"], processes=2))


def progress(key, stage="building", **lane):
    return {"event": "progress", **asdict(Progress(stage, 0, 1, key, **lane))}


def process(seed, keys, failed=()):
    """A record of these candidates, and of some that failed politely."""
    tracks = tuple(Track(Lane(key, "eager", "host"), (1.0,), 1.0, 1, 1) for key in keys)
    return Process(seed, tracks, (None,), "a guard", failed=tuple(Failed(key, "refused") for key in failed))


class Workers:
    """Measures all that it is given at once, unless a script says how a candidate behaves."""

    def __init__(self, **scripts):
        self.scripts = scripts
        self.given = []

    @contextmanager
    def __call__(self, part):
        self.given.append((part.seed, [one.key for one in part.recipes]))
        self.part = part
        yield self

    def messages(self):
        keys = [one.key for one in self.part.recipes]
        for key in keys:
            yield progress(key)
            if self.scripts.get(key) == "crash":
                raise Lost("its process exited with code 9", "Fatal error")
        refused = [key for key in keys if self.scripts.get(key) == "refuse"]
        yield {"event": "process", **process(self.part.seed, [k for k in keys if k not in refused], refused).to_dict()}


@pytest.fixture
def workers(monkeypatch):
    def employ(**scripts):
        made = Workers(**scripts)
        monkeypatch.setattr(crew, "spawned", made)
        return made

    return employ


ALL = ["base", "a", "b", "base~"]


def test_every_process_is_fresh_and_has_a_seed_of_its_own(workers):
    made = workers()
    found = list(measure_job(replace(JOB, seed=5)))
    assert made.given == [(5, ALL), (6, ALL)]
    assert [one.seed for one in found] == [5, 6]


def test_a_crash_costs_the_candidate_that_was_announced_last(workers):
    made = workers(a="crash")
    found = list(measure_job(JOB))
    assert found[0] == Failed("a", "its process exited with code 9 while building", details="Fatal error")
    assert found[1:] == [process(seed, ["base", "b", "base~"]) for seed in (0, 1)]
    assert made.given == [(0, ALL), (0, ["base", "b", "base~"]), (1, ["base", "b", "base~"])]


def test_the_baseline_may_be_the_one(workers):
    workers(base="crash", b="crash")
    found = list(measure_job(JOB))
    assert [one.candidate for one in found if isinstance(one, Failed)] == ["base", "b"]
    assert [[track.lane.candidate for track in one.tracks] for one in found[2:]] == [["a", "base~"]] * 2


def test_when_all_have_failed_no_process_is_started(workers):
    made = workers(**dict.fromkeys(ALL, "crash"))
    assert [one.candidate for one in measure_job(JOB)] == ALL
    assert len(made.given) == 4


def test_what_failed_politely_is_not_tried_in_later_processes(workers):
    made = workers(a="refuse")
    first, second = measure_job(JOB)
    assert [one.candidate for one in first.failed] == ["a"]
    assert second.failed == ()
    assert made.given[1] == (1, ["base", "b", "base~"])


def test_a_lane_that_failed_is_no_reason_to_leave_the_candidate_out(workers, monkeypatch):
    made = workers()

    def messages(self):
        lane = Failed("a", "no graph", impl="eager", regime="device")
        yield {"event": "process", **replace(process(self.part.seed, ALL), failed=(lane,)).to_dict()}

    monkeypatch.setattr(Workers, "messages", messages)
    assert len(list(measure_job(JOB))) == 2
    assert made.given == [(0, ALL), (1, ALL)]


def test_records_before_a_crash_are_not_measured_again(workers, monkeypatch):
    """Two groups of one process; the second one crashes."""
    made = workers()

    def messages(self):
        keys = [one.key for one in self.part.recipes]
        if "a" in keys:
            yield {"event": "process", **process(self.part.seed, ["base", "a", "base~"]).to_dict()}
            yield progress("b", "measuring", impl="eager", regime="host")
            raise Lost("no sign of life for 3 s", "")
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(Workers, "messages", messages)
    once = replace(JOB, effort=EFFORTS["quick"])
    found = list(measure_job(once))
    assert found[1] == Failed("b", "no sign of life for 3 s while measuring, eager, host")
    assert made.given == [(0, ALL)]


SEEN = {"sdpa": ["flash"], "peak": {"bytes": 1}}


def timed(seed, keys, failed=(), impls=("eager",)):
    """A record before its facts, but with a gate."""
    found = process(seed, keys)
    tracks = tuple(Track(Lane(key, impl, "host"), (1.0,), 1.0, 1, 1) for key in keys for impl in impls)
    return replace(found, tracks=tracks, facts={"a": {"eager": {"gate": {"ok": True}}}}, failed=failed)


def inspects(monkeypatch, record, *, until, then):
    """Workers that have timed all, and look for facts of these candidates; with the last one something happens."""

    def messages(self):
        yield {"event": "timed", **record.to_dict()}
        for key in until:
            yield progress(key, "inspecting")
            if key != until[-1]:
                yield {"event": "facts", "candidate": key, "facts": {"eager": SEEN}}
        yield from then(self)

    monkeypatch.setattr(Workers, "messages", messages)


def lost(self):
    raise Lost("its process was ended by SIGKILL", "")
    yield


ONCE = replace(JOB, effort=EFFORTS["quick"])


def test_a_worker_that_is_lost_over_facts_costs_facts_only(workers, monkeypatch, store):
    """Times that were taken are kept, no candidate is blamed, and what nobody compared is not called equal."""
    made = workers()
    inspects(monkeypatch, timed(0, ALL, impls=("eager", "compile")), until=("base", "a"), then=lost)
    (found,) = measure_job(ONCE, store=store)
    why = "its process was ended by SIGKILL while inspecting a"
    assert [track.lane.candidate for track in found.tracks] == [key for key in ALL for _ in "12"]
    assert found.failed == ()
    assert found.facts["base"]["eager"] == SEEN
    unseen = {"sdpa": None, "sdpa_note": why, "peak": None, "peak_note": why}
    assert found.facts["a"]["eager"] == {"gate": {"ok": True}, **unseen}
    for key in ALL:
        assert not found.facts[key]["compile"]["parity"]["ok"]
        assert found.facts[key]["compile"]["parity"]["reason"] == why
    assert store.finished(ONCE) == [found]
    assert made.given == [(0, ALL)]


def test_what_ran_out_of_memory_in_such_a_worker_is_tried_again(workers, monkeypatch):
    made = workers()
    record = timed(0, ["base", "a", "base~"], failed=(Failed("b", "out of memory", out_of_memory=True),))

    def then(self):
        whole = process(0, [one.key for one in self.part.recipes])
        yield from lost(self) if len(made.given) == 1 else [{"event": "process", **whole.to_dict()}]

    inspects(monkeypatch, record, until=("base",), then=then)
    assert [one.failed for one in measure_job(ONCE)] == [(), ()]
    assert made.given == [(0, ALL), (0, ["base", "b", "base~"])]


def test_a_worker_that_is_lost_after_its_record_costs_nothing(workers, monkeypatch):
    made = workers()
    whole = process(0, ALL)

    def then(self):
        yield {"event": "process", **whole.to_dict()}
        yield from lost(self)

    inspects(monkeypatch, timed(0, ALL), until=("base", "a"), then=then)
    assert list(measure_job(ONCE)) == [whole]
    assert made.given == [(0, ALL)]


def test_a_worker_that_cannot_begin_is_nobodys_fault(workers, monkeypatch):
    made = workers()

    def messages(self):
        raise Lost("its process exited with code 1", "ModuleNotFoundError: no module named torch")
        yield

    monkeypatch.setattr(Workers, "messages", messages)
    reason = r"could not begin, twice: .* code 1: ModuleNotFoundError: no module named torch$"
    with pytest.raises(MeasureError, match=reason):
        list(measure_job(JOB))
    assert made.given == [(0, ALL)] * 2


def test_a_worker_that_cannot_begin_is_replaced_once(workers, monkeypatch):
    made = workers()
    begin = Workers.messages

    def messages(self):
        if len(made.given) == 1:
            raise Lost("its process was ended by SIGKILL", "")
        yield from begin(self)

    monkeypatch.setattr(Workers, "messages", messages)
    assert list(measure_job(JOB)) == [process(seed, ALL) for seed in (0, 1)]
    assert made.given == [(0, ALL), (0, ALL), (1, ALL)]


def test_a_lane_that_ends_a_worker_is_left_out_and_no_more(workers, monkeypatch, store):
    """The candidate's other lanes are measured in a fresh worker, also where a run is taken up again."""
    made = workers()
    whole = Workers.messages
    graph = Lane("a", "eager", "device")

    def messages(self):
        if graph not in self.part.without:
            yield progress("a", "warming up", impl="eager", regime="device")
            raise Lost("no CUDA graph holds it", "", lane_only=True)
        yield from whole(self)

    monkeypatch.setattr(Workers, "messages", messages)
    once = replace(JOB, effort=EFFORTS["quick"])
    found = list(measure_job(once, store=store))
    assert found == [Failed("a", "no CUDA graph holds it", "eager", "device"), process(0, ALL)]
    assert made.given == [(0, ALL)] * 2
    list(measure_job(replace(once, effort=replace(once.effort, processes=1)), store=store))
    assert made.given == [(0, ALL)] * 2


def test_progress_is_passed_on(workers):
    seen = []
    workers()
    list(measure_job(JOB, on_progress=seen.append))
    assert [one.candidate for one in seen] == ALL * 2


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "measurements.jsonl")


def test_an_interrupted_run_takes_up_where_it_stopped(workers, store):
    workers(a="crash")
    begun = measure_job(JOB, store=store)
    before = [next(begun), next(begun)]
    begun.close()
    made = workers()
    after = list(measure_job(JOB, store=store))
    assert after[:2] == before
    assert [one.seed for one in after[1:]] == [0, 1]
    assert made.given == [(1, ["base", "b", "base~"])]


def test_a_finished_run_starts_no_process(workers, store):
    workers(a="crash", b="refuse")
    before = list(measure_job(JOB, store=store))
    made = workers()
    assert list(measure_job(JOB, store=store)) == before
    assert made.given == []
