"""Equal names for equal work, and only for that."""

import subprocess
import sys

import pytest

from explorer import load
from explorer.blueprint.workload import Workload
from explorer.latency.piece_key import piece_key, pieces_of

BASE = {"dim": 32, "heads": 4, "norm": "rmsnorm", "attention": "mha", "bias": False}
PROMPT = Workload("prefill", batch=2, tokens=8)
ALL = {"attention", "feedforward", "connection"}


def keys(fields, workload=PROMPT, label="block"):
    plan = load({**BASE, **fields}).plan()
    settled = workload.settled(encoder=plan.encoder is not None)
    return {piece: piece_key(plan, label, piece, settled) for piece in pieces_of(plan, label)}


def other(one, two):
    """The pieces of one that are other work than those of two."""
    return {piece for piece, key in one.items() if key != two[piece]}


FIELDS = {  # what is changed, and which pieces become other work by it
    "nothing": ({}, set()),
    "norm": ({"norm": "layernorm"}, {"connection"}),
    "an option of the norm": ({"norm": {"rmsnorm": {"eps": 1e-3}}}, {"connection"}),
    "residual": ({"residual": "mhc"}, {"connection"}),
    "placement": ({"placement": "post"}, {"connection"}),
    "layout": ({"layout": "parallel"}, {"connection"}),
    "dropout of a sublayer": ({"dropout": {"sublayer": 0.1}}, {"connection"}),
    "attention": ({"attention": {"gqa": {"kv_heads": 2}}}, {"attention"}),
    "an option of the attention": ({"attention": {"mha": {"softcap": 5.0}}}, {"attention"}),
    "a nested option": ({"attention": {"mha": {"qk_norm": "rmsnorm"}}}, {"attention"}),
    "an option at its default": ({"attention": {"mha": {"softcap": None}}}, set()),
    "the block's option written at the attention": ({"attention": {"mha": {"bias": False}}}, set()),
    "heads": ({"heads": 2, "head_dim": 8}, {"attention"}),
    "window": ({"window": 3}, {"attention"}),
    "mask": ({"causal": False}, {"attention"}),
    "position": ({"position": "alibi"}, {"attention"}),
    "an option of the position": ({"position": {"rope": {"base": 100.0}}}, {"attention"}),
    "dropout of attention": ({"dropout": {"attention": 0.1}}, {"attention"}),
    "feed-forward": ({"feedforward": {"dense": {"hidden": 64}}}, {"feedforward"}),
    "activation": ({"activation": "relu"}, {"feedforward"}),
    "bias": ({"bias": True}, {"attention", "feedforward"}),
    "dim": ({"dim": 64, "head_dim": 8}, ALL),
    "depth": ({"layers": 3}, set()),
    "vocabulary": ({"vocab": 11}, set()),
    "seed": ({"seed": 5}, set()),
}


@pytest.mark.parametrize(("fields", "changed"), FIELDS.values(), ids=FIELDS)
def test_what_of_a_block_makes_other_work(fields, changed):
    assert other(keys(fields), keys({})) == changed


WORKLOADS = {  # tokens 8 and context 8 of the base
    "batch": (Workload("prefill", batch=3, tokens=8), ALL),
    "tokens": (Workload("prefill", batch=2, tokens=9), ALL),
    "dtype": (Workload("prefill", batch=2, tokens=8, dtype="float32"), ALL),
    "training": (Workload("train", batch=2, tokens=8), ALL),
    "context": (Workload("prefill", batch=2, tokens=8, context=20), {"attention"}),
    "a kv dtype without cache": (Workload("prefill", batch=2, tokens=8, kv_dtype="float16"), set()),
}


@pytest.mark.parametrize(("workload", "changed"), WORKLOADS.values(), ids=WORKLOADS)
def test_what_of_a_workload_makes_other_work(workload, changed):
    assert other(keys({}, workload), keys({})) == changed


def test_a_step_of_decoding_differs_by_its_context_in_attention_only():
    short, long, narrow = (
        keys({}, Workload("decode", batch=2, context=context, kv_dtype=kv_dtype))
        for context, kv_dtype in ((9, "bfloat16"), (20, "bfloat16"), (9, "float16"))
    )
    assert other(short, long) == other(short, narrow) == {"attention"}
    assert other(short, keys({}, Workload("prefill", batch=2, tokens=1))) == {"attention"}


def test_cross_attention_reads_the_source():
    fields = {"encoder": {}}
    one = keys(fields, Workload("prefill", batch=2, tokens=8, source=5), "decoder.block")
    longer = keys(fields, Workload("prefill", batch=2, tokens=8, source=6), "decoder.block")
    assert list(one) == ["attention", "cross_attention", "feedforward", "connection"]
    assert other(one, longer) == {"cross_attention"}
    turned = keys({**fields, "position": "none"}, Workload("prefill", batch=2, tokens=8, source=5), "decoder.block")
    assert other(one, turned) == {"attention"}


def test_a_component_that_knows_its_place_is_another_at_each():
    blocks = {"layers": ["block", "late", "block"], "blocks": {"late": {"window": 3}}, "placement": "post"}
    pairs = {}
    for residual in ("add", "deepnorm", "attnres"):
        fields = {**blocks, "residual": residual, **({"placement": "pre"} if residual == "attnres" else {})}
        pairs[residual] = other(keys(fields), keys(fields, label="late"))
    assert pairs == {
        "add": {"attention"},
        "deepnorm": {"attention", "connection"},
        "attnres": {"attention", "connection"},
    }


def test_a_parallel_block_has_one_site():
    assert keys({"layout": "parallel", "residual": "attnres"}).keys() == ALL


def test_names_say_what_the_piece_is():
    found = keys({"attention": {"gqa": {"kv_heads": 2}}, "residual": "mhc"})
    heads = {piece: key.rpartition(" ")[0] for piece, key in found.items()}
    assert heads == {
        "attention": "attention gqa",
        "feedforward": "feedforward dense",
        "connection": "connection rmsnorm mhc",
    }


def test_names_are_the_same_in_every_process():
    script = f"""
from explorer import load
from explorer.blueprint.workload import Workload
from explorer.latency.piece_key import piece_key, pieces_of
plan, workload = load({BASE!r}).plan(), Workload("prefill", batch=2, tokens=8).settled()
print(*(piece_key(plan, "block", piece, workload) for piece in pieces_of(plan, "block")), sep="|")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip().split("|") == list(keys({}).values())
