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
        self.efforts = []

    @contextmanager
    def __call__(self, part):
        self.given.append((part.seed, [one.key for one in part.recipes]))
        self.efforts.append(part.effort)
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


def timed(seed, keys, impls=("eager",)):
    """A record before its facts, but with a gate."""
    tracks = tuple(Track(Lane(key, impl, "host"), (1.0,), 1.0, 1, 1) for key in keys for impl in impls)
    return replace(process(seed, keys), tracks=tracks, facts={"a": {"eager": {"gate": {"ok": True}}}})


def lost():
    raise Lost("its process was ended by SIGKILL", "")


@pytest.fixture
def inspects(workers, monkeypatch):
    """Workers that time all, and then look for facts of one after the other; `ends` says whether that ends them."""

    def employ(ends, impls=("eager",), record=lambda timed: timed):
        def messages(self):
            keys, found = [one.key for one in self.part.recipes], {}
            made.uninspected.append(self.part.uninspected)
            yield {"event": "timed", **record(timed(self.part.seed, keys, impls)).to_dict()}
            for key in keys:
                if key not in self.part.uninspected:
                    yield progress(key, "inspecting")
                    if ends(key, keys):
                        lost()
                    found[key] = dict.fromkeys(impls, SEEN)
                    yield {"event": "facts", "candidate": key, "facts": found[key]}
            yield {"event": "process", **replace(timed(self.part.seed, keys, impls), facts=found).to_dict()}

        made = workers()
        made.uninspected = []
        monkeypatch.setattr(Workers, "messages", messages)
        return made

    return employ


ONCE = replace(JOB, effort=EFFORTS["quick"])
WHY = "its process was ended by SIGKILL while inspecting a"
UNSEEN = {"sdpa": None, "sdpa_note": WHY, "peak": None, "peak_note": WHY}


def test_a_worker_that_is_lost_over_facts_costs_facts_of_one_candidate(inspects, store):
    """Times that were taken are kept, nobody is blamed, and what nobody compared is not called equal."""
    made = inspects(lambda key, keys: key == "a", impls=("eager", "compile"))
    (found,) = measure_job(ONCE, store=store)
    assert [track.lane.candidate for track in found.tracks] == [key for key in ALL for _ in "12"]
    assert found.failed == ()
    assert {key: found.facts[key] for key in ALL if key != "a"} == {
        key: {"eager": SEEN, "compile": SEEN} for key in ("base", "b", "base~")
    }
    assert found.facts["a"]["eager"] == {"gate": {"ok": True}, **UNSEEN}
    parity = found.facts["a"]["compile"]["parity"]
    assert (parity["ok"], parity["reason"]) == (False, WHY)
    assert store.finished(ONCE) == [found]
    assert made.given == [(0, ALL), (0, ["b", "base~"]), (0, ["a"])]


def test_what_ends_a_worker_beside_others_is_looked_at_alone(inspects):
    made = inspects(lambda key, keys: key == "base" and len(keys) > 1)
    (found,) = measure_job(ONCE)
    seen = {key: {"eager": SEEN} for key in ALL}
    assert found.facts == {**seen, "a": {"eager": {"gate": {"ok": True}, **SEEN}}}
    assert made.given == [(0, ALL), (0, ["a", "b", "base~"]), (0, ["base"])]


def test_each_that_ends_a_worker_costs_itself(inspects):
    inspects(lambda key, keys: key in ("base", "b"))
    (found,) = measure_job(ONCE)
    assert {key: found.facts[key]["eager"]["sdpa"] for key in ALL} == {
        "base": None,
        "a": ["flash"],
        "b": None,
        "base~": ["flash"],
    }


def test_later_processes_do_not_look_at_what_ended_one(inspects):
    made = inspects(lambda key, keys: key == "base")
    first, second = measure_job(JOB)
    assert [first.facts[key]["eager"]["sdpa"] for key in ALL] == [None, *[["flash"]] * 3]
    assert [one.lane.candidate for one in second.tracks] == ALL
    assert second.facts == {key: {"eager": SEEN} for key in ("a", "b", "base~")}
    assert made.given[3:] == [(1, ALL)]
    assert made.uninspected[3:] == [("base",)]


def test_facts_without_times_take_hardly_any_time(inspects):
    made = inspects(lambda key, keys: key == "a" and len(keys) > 1)
    list(measure_job(ONCE))
    assert [one.rounds for one in made.efforts] == [10, 1, 1]


def test_times_are_kept_where_no_other_worker_begins(inspects, monkeypatch):
    made = inspects(lambda key, keys: key == "a")
    messages = Workers.messages
    monkeypatch.setattr(Workers, "messages", lambda self: messages(self) if len(made.given) == 1 else lost())
    (found,) = measure_job(ONCE)
    assert len(found.tracks) == len(ALL)
    assert found.facts["b"]["eager"] == UNSEEN


def test_what_ran_out_of_memory_in_such_a_worker_is_tried_again(inspects):
    short = Failed("b", "out of memory", out_of_memory=True)

    def record(timed):
        if len(timed.tracks) < len(ALL):
            return timed
        return replace(timed, tracks=tuple(one for one in timed.tracks if one.lane.candidate != "b"), failed=(short,))

    made = inspects(lambda key, keys: keys == ALL, record=record)
    assert [one.failed for one in measure_job(ONCE)] == [(), ()]
    assert made.given[-1] == (0, ["base", "b", "base~"])


def test_a_worker_that_is_lost_after_its_record_costs_nothing(workers, monkeypatch):
    made = workers()

    def messages(self):
        yield {"event": "timed", **timed(0, ALL).to_dict()}
        yield progress("a", "inspecting")
        yield {"event": "process", **process(0, ALL).to_dict()}
        lost()

    monkeypatch.setattr(Workers, "messages", messages)
    assert list(measure_job(ONCE)) == [process(0, ALL)]
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
