"""Workloads: defaults, what belongs together, lists that multiply."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from explorer.blueprint.workload import Workload, workload_schema
from explorer.errors import UsageError

SMALL = "dim: 64\nheads: 4\n"
SPLIT = SMALL + "encoder: {}\n"

# written, then phase, batch, tokens, context, source once settled
SETTLED = [
    ("{}", ("prefill", 1, 2048, 2048, None)),
    ("{tokens: 8}", ("prefill", 1, 8, 8, None)),
    ("{tokens: 8, context: 20}", ("prefill", 1, 8, 20, None)),
    ("{context: 5000}", ("prefill", 1, 2048, 5000, None)),
    ("{context: 20}", ("prefill", 1, 20, 20, None)),
    ("{phase: decode, context: 5000}", ("decode", 1, 1, 5000, None)),
    ("{phase: decode, context: 1}", ("decode", 1, 1, 1, None)),
    ("{phase: decode, context: 9, tokens: 4, batch: 3}", ("decode", 3, 4, 9, None)),
    ("{phase: train}", ("train", 1, 2048, 2048, None)),
    ("{phase: train, tokens: 8, context: 8}", ("train", 1, 8, 8, None)),
]


@pytest.mark.parametrize(("written", "expected"), SETTLED)
def test_defaults(read, written, expected):
    (workload,) = read(SMALL + f"workloads: [{written}]").workloads
    full = workload.settled()
    assert (full.phase, full.batch, full.tokens, full.context, full.source) == expected
    assert (full.dtype, full.weight_dtype, full.kv_dtype) == ("bfloat16",) * 3


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("{tokens: 8}", 8),
        ("{tokens: 8, context: 20}", 8),
        ("{phase: decode, context: 20}", 20),
        ("{phase: decode, context: 20, source: 7}", 7),
        ("{source: 7}", 7),
    ],
)
def test_an_encoder_reads_source_tokens(read, written, source):
    (workload,) = read(SPLIT + f"workloads: [{written}]").workloads
    assert workload.settled(encoder=True).source == source


def test_dtypes_of_weights_and_cache_follow(read):
    (workload,) = read(SMALL + "workloads: [{dtype: float16, weight_dtype: float8_e4m3fn}]").workloads
    full = workload.settled()
    assert (full.dtype, full.weight_dtype, full.kv_dtype) == ("float16", "float8_e4m3fn", "float16")


def test_a_learned_table_cuts_the_default_and_refuses_what_is_written():
    assert Workload().settled(longest=512).tokens == 512
    assert Workload(phase="decode", context=512).settled(longest=512).context == 512
    with pytest.raises(UsageError, match="tokens 600 is longer than the learned position table of 512"):
        Workload(tokens=600).settled(longest=512)
    with pytest.raises(UsageError, match="context 600 is longer than the learned position table of 512"):
        Workload(context=600).settled(longest=512)
    with pytest.raises(UsageError, match="source 600 is longer"):
        Workload(tokens=5, source=600).settled(longest_source=512, encoder=True)


def test_lists_multiply_the_first_key_slowest(read):
    found = read(SMALL + "workloads: [{phase: decode, batch: [1, 8], context: [16, 32]}, {tokens: 4}]").workloads
    assert [(w.batch, w.context, w.tokens) for w in found] == [
        (1, 16, None),
        (1, 32, None),
        (8, 16, None),
        (8, 32, None),
        (1, None, 4),
    ]


def test_one_workload_needs_no_list(read):
    assert read(SMALL + "workloads: {tokens: 4}").workloads == (Workload(tokens=4),)
    assert read(SMALL).workloads == (Workload(),)


def test_options_replace_the_workloads_of_the_blueprint(read):
    found = read(
        SMALL + "workloads: [{tokens: 4}]", workloads=["batch=[1,2],tokens=8", "phase=decode,context=3"]
    ).workloads
    assert found == (Workload(tokens=8), Workload(batch=2, tokens=8), Workload(phase="decode", context=3))


def test_what_training_holds_and_runs_again_has_defaults(read):
    full = Workload("train").settled()
    assert (full.optimizer, full.recompute) == ("adamw", "none")
    assert full.settled() == full
    (written,) = read(SMALL + "workloads: [{phase: train, optimizer: adamw_bf16, recompute: selective}]").workloads
    assert written.settled() == replace(full, optimizer="adamw_bf16", recompute="selective")
    (off,) = read(SMALL + "workloads: [{phase: train, optimizer: null, recompute: null}]").workloads
    assert (off.optimizer, off.recompute) == ("none", "none")


def test_only_training_says_what_it_holds_and_runs_again():
    full = Workload("train", recompute="full").settled()
    assert [full.to_dict()[key] for key in ("optimizer", "recompute")] == ["adamw", "full"]
    for other in (Workload(), Workload("decode", context=9)):
        assert other.settled().to_dict().keys() & {"optimizer", "recompute"} == set()


def test_the_label_says_what_training_does_otherwise():
    words = "train, batch 1, 8 tokens, bfloat16"
    assert Workload("train", tokens=8).settled().label == words
    other = Workload("train", tokens=8, optimizer="adamw_bf16", recompute="full").settled()
    assert other.label == f"{words}, optimizer adamw_bf16, full recompute"


def test_recomputation_multiplies(read):
    found = read(SMALL + "workloads: {phase: train, recompute: [none, selective, full]}").workloads
    assert [workload.recompute for workload in found] == ["none", "selective", "full"]


def test_the_schema_knows_the_words_of_training():
    schema = jsonschema.Draft202012Validator(workload_schema())
    for value in ("none", None, "full", ["none", "full"]):
        assert schema.is_valid({"phase": "train", "recompute": value}), value
    for wrong in ("some", False, []):
        assert not schema.is_valid({"phase": "train", "recompute": wrong}), wrong


def test_what_was_left_out_stays_out(read):
    resolved = read(SMALL + "workloads: [{tokens: 4}]").resolved()
    assert resolved["workloads"] == [{"phase": "prefill", "batch": 1, "tokens": 4, "dtype": "bfloat16"}]


ERRORS = [
    ("[]", "0.yaml:3:12: workloads: must be a list of workloads, not an empty one"),
    ("null", "workloads: must be a list of workloads, not null"),
    ("[prefill]", "workloads[0]: a workload is a mapping, not the text 'prefill'\n  keys: phase, batch, tokens"),
    ("[{tokns: 3}]", "0.yaml:3:14: workloads[0].tokns: a workload has no 'tokns'\n  did you mean 'tokens'?"),
    ("[{phase: prefil}]", "must be prefill or decode or train, not the text 'prefil'\n  did you mean 'prefill'?"),
    ("[{dtype: bf16}]", "not the text 'bf16'\n  did you mean 'bfloat16'?"),
    ("[{dtype: int8}]", "workloads[0].dtype: must be float64 or float32 or bfloat16 or float16"),
    ("[{weight_dtype: none}]", "or null, not the text 'none'\n  write null"),
    *(
        (f"[{{{key}: {bad}}}]", f"workloads[0].{key}: must be int >= 1 and <= 2147483647")
        for key in ("batch", "tokens", "context")
        for bad in ("0", "-1", "true", "1.0", "99999999999")
    ),
    ("[{batch: 2.0}]", "not the number 2.0\n  write 2"),
    ("[{batch: []}]", "workloads[0].batch: the list is empty"),
    ("[{batch: [1, 2, 1]}]", "workloads[0].batch: 1 stands twice in the list"),
    ("[{batch: 1}, {}]", "workloads[1]: the same workload stands twice"),
    ("[{phase: decode}]", "0.yaml:3:13: workloads[0]: decode needs `context`"),
    ("[{tokens: 8, context: 4}]", "context 4 is shorter than the 8 new tokens it includes"),
    ("[{phase: train, tokens: 8, context: 9}]", "train has no cache, so context 9 must equal tokens 8"),
    ("[{phase: train, optimizer: adam}]", "optimizer: must be adamw or adamw_bf16 or none, not the text 'adam'"),
    ("[{phase: train, recompute: true}]", "recompute: must be none or selective or full, not true"),
    ("[{optimizer: adamw}]", "workloads[0]: optimizer adamw belongs to phase train, not to prefill"),
    (
        "[{phase: [train, decode], context: 4, tokens: 4, recompute: none}]",
        "workloads[0]: recompute none belongs to phase train, not to decode",
    ),
    ("[{source: 4}]", "0.yaml:3:14: workloads[0].source: 'source' is the length of what the encoder reads"),
    (
        f"[{{batch: {list(range(1, 41))}, tokens: {list(range(1, 41))}}}]",
        "workloads[0]: 1,600 workloads are more than 1,000",
    ),
]


@pytest.mark.parametrize(("written", "expected"), ERRORS)
def test_what_is_no_workload(told, written, expected):
    assert expected in told(SMALL + f"workloads: {written}")


def test_all_problems_of_workloads_at_once(told):
    error = told(SMALL + "workloads: [{tokns: 3, batch: 0}, {phase: decode}, {dtype: bf16}]")
    assert error.count("0.yaml:3:") == 4


def test_source_may_wait_for_an_axis_that_makes_an_encoder(read):
    text = SMALL + "workloads: [{source: 4}]\nexplore: {encoder: [null, {}]}"
    assert read(text).workloads == (Workload(source=4),)


def test_problems_of_the_option_name_it(told):
    assert told(SMALL, workloads=["batch=0"]).startswith("--workload batch=0: workload[0].batch: must be int >= 1")
