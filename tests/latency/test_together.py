"""All candidates of a job in this process: gates of what is declared equal, groups, and modules of the job."""

from dataclasses import replace

import pytest
import torch

from explorer.blueprint.workload import Workload
from explorer.latency import gates as gates_module
from explorer.latency import together
from explorer.latency.effort import Effort
from explorer.latency.gates import gates
from explorer.latency.together import measured
from explorer.registry.loading import load_registry
from tests.latency.jobs import FIELDS, PREFILL, job, recipe

EFFORT = Effort(rounds=2, fewest_rounds=2, most_rounds=4, sample_ms=0.1, warm_ms=0, warm_limit_ms=10, budget_ms=100)
NAIVE, FUSED = FIELDS | {"attention": "mha_naive"}, FIELDS | {"attention": "mha"}


def attentions(workload=PREFILL, **options):
    return job(recipe("naive", NAIVE, workload), recipe("fused", FUSED, workload), baseline="fused", **options)


@pytest.fixture
def seen():
    return []


def test_what_is_declared_equal_passes_the_gate(seen):
    ((key, gate),) = gates(attentions(), load_registry(), seen.append).items()
    assert (key, gate["with"], gate["ok"], gate["reason"]) == ("naive", "fused", True, None)
    assert [(one.stage, one.candidate) for one in seen] == [("comparing", "naive")]


def test_a_decoder_reads_a_source_at_the_gate(seen):
    workload = Workload("prefill", tokens=4, source=7, dtype="float32").settled(encoder=True)
    both = [
        recipe(key, fields | {"encoder": {}}, workload, "decoder.block")
        for key, fields in (("naive", NAIVE), ("fused", FUSED))
    ]
    assert gates(job(*both, baseline="fused"), load_registry(), seen.append)["naive"]["ok"]


@pytest.mark.parametrize(
    "made",
    [
        job(recipe("a"), recipe("b", FIELDS | {"norm": "layernorm"}), baseline="a"),
        job(recipe("a"), baseline="a"),  # a clone is the same by construction
        job(recipe("naive", NAIVE), recipe("fused", FUSED)),  # not compared
    ],
    ids=["another norm", "a clone", "no baseline"],
)
def test_others_have_no_gate(made, seen):
    assert gates(made, load_registry(), seen.append) == {}


def test_a_gate_that_fails_says_why(seen, monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gates_module, "compare_runs", fails)
    assert gates(attentions(), load_registry(), seen.append)["naive"] == {
        "with": "fused",
        "ok": False,
        "reason": "out of memory while comparing: CUDA out of memory.",
        "error": None,
        "bound": None,
    }


def test_a_record_has_facts_of_every_candidate(seen):
    (process,) = measured(attentions(effort=EFFORT, seed=3), seen.append)
    assert process.seed == 3
    assert [track.lane.candidate for track in process.tracks] == ["naive", "fused", "fused~"]
    assert {key: facts["eager"]["sdpa"] for key, facts in process.facts.items()} == {
        "naive": ["flash"],  # once for each head
        "fused": ["flash"],
        "fused~": ["flash"],
    }
    assert [key for key, facts in process.facts.items() if "gate" in facts["eager"]] == ["naive"]
    peak = process.facts["fused"]["eager"]["peak"]
    assert peak["bytes"] is None or peak["bytes"] >= 0


def test_rounds_are_counted_beside_the_baseline(seen, monkeypatch):
    told = []
    rounds = together.measure
    monkeypatch.setattr(together, "measure", lambda *given, **more: told.append(more) or rounds(*given, **more))
    list(measured(attentions(effort=EFFORT), seen.append))
    assert [one["baselines"] for one in told] == [{"naive": "fused", "fused": None, "fused~": "fused"}]


def test_a_record_has_its_gates_before_its_facts(seen):
    told = []
    (process,) = measured(attentions(effort=EFFORT), seen.append, told.append, lambda *found: told.append(found))
    record, *facts = told
    assert record.tracks == process.tracks
    assert record.facts == {"naive": {"eager": {"gate": process.facts["naive"]["eager"]["gate"]}}}
    assert [key for key, _ in facts] == ["naive", "fused", "fused~"]


def test_a_job_says_whose_facts_are_not_looked_for(seen):
    (process,) = measured(replace(attentions(effort=EFFORT), uninspected=("fused",)), seen.append)
    assert [key for key, found in process.facts.items() if found["eager"]["sdpa"] is None] == ["fused"]


def test_what_does_not_fit_together_is_measured_in_groups(seen, monkeypatch):
    monkeypatch.setattr(together, "free_bytes", lambda device: 1000)
    made = job(*(recipe(key, least_bytes=300) for key in "abc"), baseline="a", effort=EFFORT)
    groups = [[track.lane.candidate for track in one.tracks] for one in measured(made, seen.append)]
    assert groups == [["a", "b", "a~"], ["a", "c", "a~"]]


@pytest.mark.parametrize(("cache", "groups"), [("warm", [3]), ("rotate", [2, 1])])
def test_copies_take_room_too(seen, monkeypatch, cache, groups):
    """Three candidates of 3 KiB each in 72 KB; 4 x 6 KiB of cache are 8 copies, which are 74 KB."""
    monkeypatch.setattr(together, "free_bytes", lambda device: 90_000)
    made = job(*(recipe(key, least_bytes=3072) for key in "abc"), effort=EFFORT, cache=cache, last_cache=6144)
    assert [len(one.tracks) for one in measured(made, seen.append)] == groups
