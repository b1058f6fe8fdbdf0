"""Options of the command line: splitting, flow style, the short form."""

from __future__ import annotations

import pytest

from explorer.blueprint.options import axis_entry, set_entry, split, value_node, workload_node
from explorer.blueprint.tree import plain
from explorer.errors import BlueprintError, UsageError, Where

HERE = Where("--set")

SPLITS = [
    ("a,b", ["a", "b"]),
    (" a , b ", ["a", "b"]),
    ("a,[b,c],{d: [e,f]},(g,h)", ["a", "[b,c]", "{d: [e,f]}", "(g,h)"]),
    ("'a,b',\"c,d\"", ["'a,b'", '"c,d"']),
    ("'a]',b", ["'a]'", "b"]),
    ("a],b", ["a]", "b"]),
    ("a,", ["a", ""]),
    ("", [""]),
]


@pytest.mark.parametrize(("text", "parts"), SPLITS)
def test_split_outside_brackets_and_quotes(text, parts):
    assert split(text, ",") == parts


VALUES = [
    ("8", 8),
    ("1e-5", 1e-5),
    ("true", True),
    ("null", None),
    ("mha", "mha"),
    ('"8"', "8"),
    ("'a: b'", "a: b"),
    ("[a, {b: 2}]", ["a", {"b": 2}]),
    ("{rmsnorm: {eps: 1e-5}}", {"rmsnorm": {"eps": 1e-5}}),
    ("gqa:kv_heads=8", {"gqa": {"kv_heads": 8}}),
    ("gqa: kv_heads = 8 : qk_norm = rmsnorm", {"gqa": {"kv_heads": 8, "qk_norm": "rmsnorm"}}),
    ("gqa:qk_norm={rmsnorm: {eps: 1e-5}}:kv_heads=8", {"gqa": {"qk_norm": {"rmsnorm": {"eps": 1e-5}}, "kv_heads": 8}}),
    ("dense:hidden={ratio: 8/3, multiple_of: 256}", {"dense": {"hidden": {"ratio": "8/3", "multiple_of": 256}}}),
    ("mha:bias=out", {"mha": {"bias": "out"}}),
    ("gqa:scale=null", {"gqa": {"scale": None}}),
    ("pkg:gqa", "pkg:gqa"),
    ("pkg:gqa:kv_heads=8", {"pkg:gqa": {"kv_heads": 8}}),
    ("gqa:name='a:b'", {"gqa": {"name": "a:b"}}),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text, value):
    assert plain(value_node(text, HERE)) == value


def test_options_as_entries():
    entry = axis_entry("attention=mha,gqa:kv_heads=8:qk_norm=rmsnorm")
    assert (entry.key, plain(entry.value)) == ("attention", ["mha", {"gqa": {"kv_heads": 8, "qk_norm": "rmsnorm"}}])
    assert str(entry.key_where) == "--axis attention=mha,gqa:kv_heads=8:qk_norm=rmsnorm"
    assert plain(axis_entry("layers=[a,b],4").value) == [["a", "b"], 4]
    assert plain(set_entry("feedforward.hidden = 8").value) == 8
    assert plain(set_entry("head={lm: {bias: true}}").value) == {"lm": {"bias": True}}
    assert plain(workload_node("phase=decode,batch=[1,8],context=4096")) == {
        "phase": "decode",
        "batch": [1, 8],
        "context": 4096,
    }


@pytest.mark.parametrize(
    ("make", "text", "message"),
    [
        (set_entry, "dim", "--set dim: write --set PATH=VALUE"),
        (set_entry, "dim=", "--set dim=: write --set PATH=VALUE"),
        (set_entry, "=8", "--set =8: write --set PATH=VALUE"),
        (axis_entry, "norm=", "write --axis PATH=VALUE"),
        (axis_entry, "norm=a,,b", "--axis norm=a,,b: a value is empty"),
        (axis_entry, "norm=a,", "a value is empty"),
        (set_entry, "attention=gqa:kv_heads=8:qk_norm", "'qk_norm' is not KEY=VALUE"),
        (set_entry, "attention=gqa:kv_heads=8:kv_heads=4", "kv_heads is given twice"),
        (workload_node, "batch=1,batch=2", "--workload batch=1,batch=2: batch is given twice"),
        (workload_node, "prefill", "--workload prefill: 'prefill' is not KEY=VALUE"),
        (workload_node, "batch=", "'batch=' is not KEY=VALUE"),
    ],
)
def test_what_is_no_option(make, text, message):
    with pytest.raises(UsageError) as caught:
        make(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["norm=[rmsnorm", "norm={a: 1", "heads=0512", "bias=yes", "norm='a"])
def test_the_yaml_of_a_value_is_as_strict_as_a_file(text):
    with pytest.raises(BlueprintError) as caught:
        set_entry(text)
    assert str(caught.value).startswith(f"--set {text}")


UNCLOSED = [  # what is written, what is said behind it
    ("attention={gqa:", "the text ends inside a list or mapping\n  close it with ] or }"),
    ("norm='a", "the text ends inside a quoted text\n  close it with the quote that opens it"),
    ("norm={a: 1}}", "the text goes on behind the end of its value\n  close each bracket once"),
]


@pytest.mark.parametrize(("text", "said"), UNCLOSED)
def test_what_is_not_closed_is_said_in_words_and_without_a_column(text, said):
    with pytest.raises(BlueprintError) as caught:
        set_entry(text)
    assert str(caught.value) == f"--set {text}: {said}"


def test_problems_of_an_option_name_it(told):
    error = told("dim: 64\nheads: 4", sets=["norm=rmsnorm:epsilon=1", "heads=x"])
    assert error.startswith("--set norm=rmsnorm:epsilon=1: norm.epsilon: norm 'rmsnorm' has no parameter 'epsilon'")
    assert "--set heads=x: heads: must be int >= 1" in error


def test_a_package_picks_one_of_two_names(read, told, plugin, registry):
    from explorer.registry.registry import Registry

    both = Registry((*registry.packages, plugin("other", {"norm": {"rmsnorm": lambda dim: None}})))
    text = "dim: 64\nheads: 4"
    assert "write 'toys:rmsnorm' for the one of toys-dist 1.0" in told(text, sets=["norm=rmsnorm"], registry=both)
    chosen = read(text, sets=["norm=toys:rmsnorm:eps=1"], registry=both)
    assert chosen.resolved()["norm"] == {"toys:rmsnorm": {"eps": 1.0, "offset": 0.0}}
    assert read(chosen.resolved(), registry=both).resolved() == chosen.resolved()
