"""From records of processes to entries of `latencies`: written by hand, so that every number is known."""

import json
from dataclasses import replace

import pytest

from explorer.blueprint.load import load
from explorer.blueprint.resolved import resolved
from explorer.blueprint.workload import Workload
from explorer.errors import UsageError
from explorer.latency.raw import Failed, Lane, Process, Track
from explorer.prediction.hardware_table import hardware_table
from explorer.study.comparisons import comparisons
from explorer.study.measured import Measured
from explorer.study.measuring import Measuring, chosen_rows
from explorer.study.pareto import pareto
from explorer.study.possible import possible
from explorer.study.run import run

ROUNDS = 12


def track(candidate, ms, impl="eager", regime="host"):
    """Times that grow by one in a thousand from round to round."""
    times = tuple(ms * (1 + index / 1000) for index in range(ROUNDS))
    return Track(Lane(candidate, impl, regime), times, first_call_ms=9.0, warmup=5, calls=3)


def process(seed, *tracks, failed=(), facts=None):
    about = {"device_name": "a device", "threads": 2}
    return Process(seed, tracks, (None,) * ROUNDS, "a guard", about, facts or {}, failed)


def three_processes(**candidates):
    """Processes that differ a little; `base~` is the baseline once more."""
    return [
        process(seed, *(track(key.replace("_again", "~"), ms * factor) for key, ms in candidates.items()))
        for seed, factor in enumerate((1.0, 1.01, 0.99))
    ]


def test_an_entry_has_times_ratio_verdict_and_rank():
    found = Measured(three_processes(base=1.0, base_again=1.0, slow=1.2), {"base": None, "slow": "base"})
    (slow,), (base,) = found.entries("slow"), found.entries("base")
    assert (slow["source"], slow["device"], slow["impl"], slow["regime"]) == ("measured", "a device", "eager", "host")
    assert slow["verdict"] == "slower"
    assert slow["ratio"]["value"] == pytest.approx(1.2)
    assert slow["ratio"]["baseline_id"] == "base"
    assert (slow["ratio"]["processes"], slow["ratio"]["rounds"]) == (3, 3 * ROUNDS)
    assert (base["rank"], slow["rank"]) == (1, 2)
    assert base["verdict"] is base["ratio"] is None
    assert base["median_ms"] == pytest.approx(1.0, rel=0.02)
    assert base["first_call_ms"] == 9.0
    json.dumps(found.to_dict())


@pytest.mark.parametrize(("slow", "word"), [(1.12, "unclear"), (1.5, "slower")])
def test_a_baseline_that_differs_from_itself_leaves_large_differences_and_no_ranks(slow, word):
    found = Measured(three_processes(base=1.0, base_again=1.1, slow=slow), {"base": None, "slow": "base"})
    (entry,) = found.entries("slow")
    assert (entry["verdict"], entry["rank"]) == (word, None)
    (control,) = found.to_dict()["control_ratios"]
    assert control["value"] == pytest.approx(1.1)


def test_implementations_are_compared_each_with_its_own():
    times = {"base": (1.0, 0.5), "base~": (1.0, 0.5), "other": (1.0, 1.0)}
    impls = ("eager", "compile")
    tracks = [track(key, ms, impl) for key, both in times.items() for impl, ms in zip(impls, both, strict=True)]
    found = Measured([process(0, *tracks)], {"base": None, "other": "base"})
    ratios = {entry["impl"]: entry["ratio"]["value"] for entry in found.entries("other")}
    assert ratios == {"eager": pytest.approx(1.0), "compile": pytest.approx(2.0)}


def test_host_bound_is_throughput_over_device():
    def flag(throughput):
        tracks = [track("x", throughput, regime="throughput"), track("x", 1.0, regime="device")]
        return Measured([process(0, *tracks)], {}).entries("x")[0]["host_bound"]

    assert flag(1.3) is True
    assert flag(1.1) is False


def test_a_cold_cache_says_nothing_of_launching():
    """While the device overwrites its cache the host launches ahead."""
    cold = [replace(track("x", 9.0, regime="throughput"), cache="cold"), track("x", 1.0, regime="device")]
    assert [entry["host_bound"] for entry in Measured([process(0, *cold)], {}).entries("x")] == [None, None]


def test_what_failed_has_its_reason_and_costs_nothing_else():
    failures = (Failed("broken", "out of memory while building"), Failed("x", "no graph", "eager", "device"))
    found = Measured(
        [process(0, track("x", 1.0, regime="throughput"), failed=failures), Failed("gone", "its process ended")],
        {},
    )
    assert [(e["regime"], e["median_ms"] is None, e["reason"]) for e in found.entries("x")] == [
        ("throughput", False, None),
        ("device", True, "no graph"),
    ]
    assert found.reason("x") is None
    assert found.reason("broken") == "out of memory while building"
    assert found.reason("gone") == "its process ended"
    assert found.entries("gone")[0]["reason"] == "its process ended"


def test_facts_are_told_with_the_times():
    facts = {"x": {"eager": {"sdpa": ["flash"], "sdpa_note": None}}}
    assert Measured([process(0, track("x", 1.0), facts=facts)], {}).entries("x")[0]["sdpa"] == ["flash"]


STUDY = {
    "dim": 32,
    "heads": 4,
    "layers": 2,
    "explore": {"attention": ["mha", {"gqa": {"kv_heads": 1}}], "activation": ["gelu", "swiglu"]},
    "workloads": [{"phase": "prefill", "tokens": 8}, {"phase": "decode", "context": 8}],
}


@pytest.fixture(scope="module")
def rows():
    return run(STUDY, audit=0).to_dict()["combinations"]


def test_blocks_of_one_workload_share_their_rounds(rows):
    found = comparisons(rows)
    assert [(one.block, one.workload.phase, len(one.places)) for one in found] == [
        ("block", "prefill", 4),
        ("block", "decode", 4),
    ]
    base = next(row["id"] for row in rows if row["baseline"])
    assert [recipe.key for recipe in found[0].recipes[4:]] == [f"{base}~"]
    assert set(found[0].baselines.values()) <= {base, None}
    recipe, cost = found[1].recipes[0], next(c for c in rows[0]["costs"] if c["workload"]["phase"] == "decode")
    assert recipe.touched_bytes == cost["weight_bytes"] + cost["kv_cache_bytes"]
    assert resolved(load(recipe.document).state) == recipe.document
    assert Workload(**recipe.workload).phase == "decode"


def test_an_idle_encoder_is_not_timed():
    document = {
        "dim": 32,
        "heads": 4,
        "vocab": 64,
        "encoder": {"layers": 1},
        "decoder": {"layers": 1},
        "workloads": [{"phase": "decode", "context": 8}, {"phase": "prefill", "tokens": 8}],
    }
    found = comparisons(run(document, audit=0).to_dict()["combinations"])
    assert [(one.workload.phase, one.block) for one in found] == [
        ("decode", "decoder.block"),
        ("prefill", "encoder.block"),
        ("prefill", "decoder.block"),
    ]


def test_pareto_rows_are_beaten_by_none(rows):
    """One key-value head and two weights instead of three are the least of everything."""
    assert [row["choices"] for row in pareto(rows)] == [{"attention": "gqa:kv_heads=1", "activation": "gelu"}]


@pytest.mark.parametrize(("which", "count"), [("all", 4), ("parts", 4), ("pareto", 2), ("1", 1), ("2", 2), ("99", 4)])
def test_chosen_rows_have_their_baselines(rows, which, count):
    chosen = chosen_rows(rows, which)
    ids = {row["id"] for row in chosen}
    assert len(ids) == count
    assert all(row["baseline_id"] in ids for row in chosen if row["baseline_id"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "pareot"}, "measure takes all, parts, pareto or a number of rows, not 'pareot'; did you mean"),
        ({"rows": "0"}, "measure takes at least 1 row"),
        ({"effort": "quik"}, "effort 'quik'"),
        ({"impls": ("egaer",)}, "impl 'egaer'"),
        ({"cache": "cold"}, "cache mode 'cold'"),
        ({"device": "cuda:99"}, "device 'cuda:99'"),
    ],
)
def test_wrong_words_are_told_before_any_work(options, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        Measuring(**options).check()


def gate(ok):
    return {"with": "base", "error": 0.1, "bound": 0.01, "ok": ok, "reason": None if ok else "results differ by 0.1"}


@pytest.mark.parametrize("fact", ["gate", "parity"])
def test_no_speed_up_is_shown_on_a_failed_gate(fact):
    def found(ok):
        facts = {"other": {"eager": {fact: gate(ok)}}}
        processes = [process(0, track("base", 1.0), track("base~", 1.0), track("other", 0.5), facts=facts)]
        return Measured(processes, {"base": None, "other": "base"}).entries("other")[0]

    assert found(True)["verdict"] == "faster"
    assert (found(False)["verdict"], found(False)["ratio"]) == ("unclear", None)
    assert found(False)["reason"] == "results differ by 0.1"


@pytest.mark.parametrize(
    ("caches", "verdict", "rank"),
    [
        (("warm", "warm"), "faster", 1),
        (("cold weights", "cold weights"), "faster", 1),
        (("warm", "cold weights"), "unclear", None),
    ],
)
def test_a_warm_block_is_not_held_against_a_cold_one(caches, verdict, rank):
    """As in a decode of which the small one would need too many copies."""
    other, base = (
        replace(track(key, ms), cache=cache)
        for key, ms, cache in zip(("other", "base"), (0.5, 1.0), caches, strict=True)
    )
    clone = replace(base, lane=replace(base.lane, candidate="base~"))
    (entry,) = Measured([process(0, other, base, clone)], {"base": None, "other": "base"}).entries("other")
    assert (entry["verdict"], entry["rank"], entry["ratio"] is None) == (verdict, rank, rank is None)
    if rank is None:
        assert entry["reason"].startswith("its cache was 'warm', that of the baseline 'cold weights': add --cache warm")


@pytest.mark.parametrize("fact", ["gate", "parity"])
@pytest.mark.parametrize(("note", "reason"), [({}, "not compared"), ({"{}_note": "out of memory"}, "out of memory")])
def test_a_gate_of_which_nothing_is_known_is_closed(fact, note, reason):
    facts = {"other": {"compile": {fact: None, **{key.format(fact): text for key, text in note.items()}}}}
    tracks = [track(key, ms, "compile") for key, ms in {"base": 1.0, "base~": 1.0, "other": 0.5}.items()]
    found = Measured([process(0, *tracks, track("other", 1.0), facts=facts)], {"base": None, "other": "base"})
    compiled = next(entry for entry in found.entries("other") if entry["impl"] == "compile")
    assert (compiled["verdict"], compiled["ratio"], compiled["reason"]) == ("unclear", None, reason)
    assert (compiled["against_eager"] is None) == (fact == "parity")


@pytest.mark.parametrize("gated", ["base", "other"])
def test_what_is_gated_has_no_rank(gated):
    facts = {gated: {"compile": {"parity": gate(False)}}}
    times = {"base": 1.0, "base~": 1.0, "other": 0.5, "third": 2.0}
    tracks = [track(key, ms, "compile") for key, ms in times.items()]
    found = Measured([process(0, *tracks, facts=facts)], {"base": None, "other": "base", "third": "base"})
    ranks = {key: found.entries(key)[0]["rank"] for key in ("base", "other", "third")}
    expected = {"base": {"base": None, "other": None, "third": None}, "other": {"base": 1, "other": None, "third": 2}}
    assert ranks == expected[gated], "where the baseline is gated so is what is held against it"


@pytest.mark.parametrize(("clone", "ranks"), [(1.0, [1, 2]), (1.1, [None, None]), (None, [None, None])])
def test_nothing_is_ranked_beside_a_baseline_that_differs_from_itself(clone, ranks):
    times = {"base": 1.0, **({} if clone is None else {"base_again": clone}), "slow": 1.5}
    found = Measured(three_processes(**times), {"base": None, "slow": "base"})
    assert [found.entries(key)[0]["rank"] for key in ("base", "slow")] == ranks


def test_what_was_not_left_alone_has_no_rank():
    tracks = [track(key, ms) for key, ms in {"base": 1.0, "base~": 1.0, "other": 2.0}.items()]
    busy = replace(tracks[-1], disturbed=("a neighbour",) * (ROUNDS - 2) + (None, None))
    found = Measured([process(0, *tracks[:2], busy)], {"base": None, "other": "base"})
    (base,), (other,) = found.entries("base"), found.entries("other")
    assert (other["verdict"], other["rank"], base["rank"]) == ("contended", None, 1)


@pytest.mark.parametrize(("ok", "value"), [(True, 0.5), (False, None)])
def test_compiled_is_compared_with_eager_where_they_agree(ok, value):
    facts = {"x": {"compile": {"parity": gate(ok)}}}
    processes = [process(0, track("x", 1.0), track("x", 0.5, "compile"), facts=facts)]
    eager, compiled = Measured(processes, {}).entries("x")
    assert eager["against_eager"] is None
    assert (compiled["against_eager"] and pytest.approx(compiled["against_eager"]["value"])) == value


def test_a_time_beyond_the_peak_of_the_device_is_refused():
    """Public case C1: the block of width 768 at 2,048 tokens is 41,875,931,136 FLOPs, 42 us at the very least here."""
    table = hardware_table()
    cost = {"matmul_flops": 41_875_931_136, "matmul_flops_exact": None, "workload": {"dtype": "bfloat16"}}
    entry = {"source": "measured", "device": "NVIDIA H100 80GB HBM3", "impl": "eager", "regime": "throughput"}
    (slow,) = possible([{**entry, "median_ms": 0.1}], cost, table)
    assert slow["median_ms"] == 0.1
    (fast,) = possible([{**entry, "median_ms": 0.03}], cost, table)
    assert fast["median_ms"] is None
    assert "more than the dense peak of h100-sxm, 989 TFLOP/s" in fast["reason"]
    (summed,) = possible([{**entry, "median_ms": 0.03, "of": "parts", "pieces": {"attention": 0.03}}], cost, table)
    assert (summed["of"], summed["reason"], "pieces" in summed) == ("parts", fast["reason"], False)
    assert {**fast, "of": "parts"} == summed
    (elsewhere,) = possible([{**entry, "device": "a laptop", "median_ms": 0.03}], cost, table)
    assert elsewhere["median_ms"] == 0.03


def test_each_baseline_has_a_control_of_its_own():
    """Two baselines of different speed: each is held against its own clone."""
    tracks = [track(key, ms) for key, ms in {"a": 1.0, "a~": 1.0, "b": 5.0, "b~": 5.0, "x": 1.2, "y": 6.0}.items()]
    found = Measured([process(0, *tracks)], {"a": None, "b": None, "x": "a", "y": "b"})
    assert [found.entries(key)[0]["verdict"] for key in "xy"] == ["slower", "slower"]
    assert [ratio["baseline_id"] for ratio in found.to_dict()["control_ratios"]] == ["a", "b"]


def test_without_the_clone_there_is_no_verdict():
    lost = Failed("base~", "its process ended")
    found = Measured([process(0, track("base", 1.0), track("other", 2.0)), lost], {"base": None, "other": "base"})
    (entry,) = found.entries("other")
    assert (entry["verdict"], entry["ratio"]) == ("unclear", None)
    assert entry["reason"] == "the baseline cannot be held against itself: its process ended"
    assert found.to_dict()["failed"][0]["candidate"] == "base~"


@pytest.mark.parametrize(
    ("lane", "told"),
    [
        (("eager", "host"), "lost; no room"),
        (("compile", "host"), "lost; no g++"),
        (("compile", None), "lost; no g++"),
        ((None, None), "lost; no room; no g++"),
        (("eager", "device"), "lost"),
    ],
)
def test_failures_are_told_of_a_lane(lane, told):
    failures = [Failed("x", "lost"), Failed("x", "no room", "eager", "host"), Failed("x", "no g++", "compile")]
    assert Measured([*failures, Failed("y", "gone")], {}).failure("x", *lane) == told
    assert Measured([], {}).failure("x", *lane) is None


def test_a_candidate_that_one_process_lost_is_an_error():
    found = Measured([*three_processes(base=1.0, slow=1.2), Failed("slow", "its process ended")], {"slow": "base"})
    assert found.reason("slow") == "its process ended"
    assert found.entries("slow")[0]["median_ms"] is not None


def test_the_baselines_own_parity_counts():
    tracks = [track(key, 1.0, "compile") for key in ("base", "base~", "other")]
    facts = {"base": {"compile": {"parity": gate(False)}}}
    found = Measured([process(0, *tracks, facts=facts)], {"base": None, "other": "base"})
    assert found.entries("other")[0]["reason"] == "results differ by 0.1"
