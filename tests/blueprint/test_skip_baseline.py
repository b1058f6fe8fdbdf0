"""Rows that are left out, and what each row is compared with."""

from __future__ import annotations

import pytest

SMALL = "dim: 64\nheads: 4\n"


def skipped(blueprint):
    return {" ".join(row.choices.values()): row.skipped for row in blueprint.combinations().rows if row.skipped}


BLOCKS = "blocks: {local: {window: 8, attention: mha_naive}, global: {}}\nlayers: [local, global]\n"
RESIDUALS = "explore: {residual: [add, deepnorm], placement: [pre, post]}\n"
ERAS = "explore: {era: {old: {norm: layernorm}, new: {}}, norm.eps: [1, 2]}\n"
QK = "explore: {qk: {without: {}, with: {attention.qk_norm: rmsnorm}}, attention: [mha, mha_naive]}\n"
GQA = "attention: {gqa: {kv_heads: 2}}\n"

# blueprint, skip, the choices of the rows that are skipped
SKIPS = [
    # rows where all hold
    (RESIDUALS, "[{residual: deepnorm, placement: pre}]", ["deepnorm pre"]),
    (RESIDUALS, "[{residual: deepnorm}, {placement: pre}]", ["add pre", "deepnorm pre", "deepnorm post"]),
    (RESIDUALS, "[{residual: none}]", []),
    (RESIDUALS, "null", []),
    # a bare name matches any parameters, a mapping those that it writes, a package its own
    ("explore: {norm: [layernorm, {rmsnorm: {eps: 1}}, rmsnorm]}", "[{norm: rmsnorm}]", ["rmsnorm:eps=1", "rmsnorm"]),
    ("explore: {norm: [layernorm, {rmsnorm: {eps: 1}}, rmsnorm]}", "[{norm: {rmsnorm: {eps: 1}}}]", ["rmsnorm:eps=1"]),
    ("explore: {norm: [layernorm, {rmsnorm: {eps: 1}}]}", "[{norm: toys:rmsnorm}]", ["rmsnorm:eps=1"]),
    ("explore: {norm: [layernorm, rmsnorm]}", "[{norm: {rmsnorm: {eps: 1e-6}}}]", ["rmsnorm"]),
    # parameters, nested ones too, in force or as written
    (GQA + "explore: {attention.kv_heads: [1, 2]}", "[{attention.kv_heads: 2}]", ["2"]),
    (GQA + "explore: {attention.qk_norm: [null, rmsnorm]}", "[{attention.qk_norm: rmsnorm}]", ["rmsnorm"]),
    (GQA + "explore: {attention.qk_norm: [null, rmsnorm]}", "[{attention.qk_norm: none}]", ["null"]),
    (GQA + "explore: {attention.qk_norm: [null, rmsnorm]}", "[{attention.qk_norm.eps: 1e-6}]", ["rmsnorm"]),
    (GQA + "explore: {bias: [true, false]}", "[{attention.bias: true}]", ["true"]),
    (GQA + "explore: {attention.bias: [out, false]}", "[{attention.bias: out}]", ["out"]),
    ("explore: {feedforward.hidden: [{ratio: 4}, 128]}", "[{feedforward.hidden.ratio: 4}]", ["{ratio: 4}"]),
    ("explore: {feedforward.hidden: [{ratio: 4}, 128]}", "[{feedforward.hidden: 128}]", ["128"]),
    ("explore: {dropout.attention: [0, 0.1]}", "[{dropout.attention: 0}]", ["0"]),
    ("explore: {window: [null, 8]}", "[{window: null}]", ["null"]),
    ("explore: {heads: [4, 8]}", "[{head_dim: 8}]", ["8"]),
    ("explore: {placement: [pre, post]}", "[{final_norm: none}]", ["post"]),
    ("explore: {placement: [pre, none]}", "[{placement: null}]", ["none"]),
    ("explore: {layers: [2, 3]}", "[{layers: [block, {block: 1}]}]", ["2"]),
    ("explore: {dim: [64, 32]}", "[{dim: 32}]", ["32"]),
    ("explore: {causal: [true, false]}", "[{causal: false}]", ["false"]),
    # in some block: all conditions in the same one
    (BLOCKS + "explore: {norm: [rmsnorm, layernorm]}", "[{window: 8, norm: layernorm}]", ["layernorm"]),
    (BLOCKS + "explore: {norm: [rmsnorm, layernorm]}", "[{window: 8, attention: mha}]", []),
    (BLOCKS + "explore: {blocks.local.window: [8, 4]}", "[{blocks.local.window: 8}]", ["8"]),
    (BLOCKS + "explore: {norm: [rmsnorm, layernorm]}", "[{blocks.global.window: 8}]", []),
    ("encoder: {}\nexplore: {bias: [true, false]}", "[{encoder.bias: true}]", ["true"]),
    ("encoder: {}\nexplore: {bias: [true, false]}", "[{encoder.causal: true}]", []),
    # an unnamed block that no layer is of is none
    ("bias: true\nblocks: {a: {bias: false}}\nlayers: [a]\nexplore: {window: [1, 2]}", "[{bias: true}]", []),
    # axes of named options
    (ERAS, "[{era: old, norm.eps: 2}]", ["old 2"]),
    (ERAS, "[{era: new}]", ["new 1", "new 2"]),
    (ERAS, "[{era: new, norm: layernorm}]", []),
    # one that rests in a row has no option there
    (QK, "[{qk: with}]", ["with mha"]),
    (QK, "[{qk: without}]", ["without mha"]),
]


@pytest.mark.parametrize(("study", "skip", "expected"), SKIPS)
def test_rows_that_are_skipped(read, study, skip, expected):
    blueprint = read(SMALL + f"{study}\nskip: {skip}")
    assert list(skipped(blueprint)) == expected


def test_a_skipped_row_shows_its_rule(read):
    rows = skipped(read(SMALL + RESIDUALS + "skip: [{residual: deepnorm, placement: pre}]"))
    assert rows == {"deepnorm pre": "skip: residual: deepnorm, placement: pre"}


def test_a_rule_comes_before_what_else_is_wrong(read):
    rows = skipped(read(SMALL + "explore: {heads: [4, 3]}\nskip: [{heads: 3}]"))
    assert rows == {"3": "skip: heads: 3"}


def test_an_equal_row_under_another_name_is_kept(read):
    found = read(SMALL + "explore: {era: {old: {}, new: {}}}\nskip: [{era: old}]").combinations()
    assert [(row.choices, row.skipped) for row in found.rows] == [({"era": "new"}, None)]
    assert found.merged == 1


def test_no_row_left(told):
    error = told(SMALL + RESIDUALS + "skip: [{dim: 64}]")
    assert error.startswith("0.yaml:4:8: skip: no combination is left: 4 of 4 are skipped\n  skip: dim: 64")


ERRORS = [
    ("{residual: add}", "0.yaml:4:7: skip: must be a list of mappings, not a mapping"),
    ("[add]", "skip[0]: must be a mapping of conditions, not the text 'add'"),
    ("[{}]", "skip[0]: must be a mapping of conditions, not an empty one"),
    ("[{residual: ad}]", "skip[0].residual: no residual is called 'ad'\n  did you mean 'add'?"),
    ("[{residaul: add}]", "0.yaml:4:9: skip[0].residaul: there is no field 'residaul'\n  did you mean 'residual'?"),
    ("[{ear: old}]", "skip[0].ear: there is no field 'ear'\n  did you mean 'era'?"),
    ("[{era: odl}]", "skip[0].era: odl is not on this axis\n  did you mean 'old'?\n  values: old, new"),
    ("[{attention.kv_head: 2}]", "no attention has a parameter 'kv_head'\n  did you mean 'kv_heads'?"),
    ("[{attention.kv_heads: x}]", "skip[0].attention.kv_heads: must be int >= 1, not the text 'x'"),
    ("[{attention.qk_norm.epsilon: 1}]", "no attention has a parameter 'qk_norm.epsilon'"),
    ("[{dropout.atention: 0}]", "no dropout has a parameter 'atention'\n  did you mean 'attention'?"),
    ("[{window.x: 0}]", "below window there are: no parameters"),
    ("[{heads: [4, 8]}]", "skip[0].heads: must be int >= 1 and <= 16777216, not a list"),
    ("[{blocks.lcoal.heads: 4}]", "there is no block 'lcoal'"),
    ("[{encoder.heads: 4}]", "0.yaml:4:9: skip[0].encoder.heads: the model has one stack"),
    ("[{blocks: 4}]", "skip[0].blocks: is no path"),
    ("[{encoder.dim: 4}]", "'dim' belongs to the model, not to encoder"),
    ("[{workloads: 4}]", "'workloads' stands at the top of a file only"),
]


@pytest.mark.parametrize(("skip", "expected"), ERRORS)
def test_a_rule_that_can_never_hold_is_refused(told, skip, expected):
    assert expected in told(SMALL + ERAS + f"skip: {skip}")


def partners(blueprint, dead=()):
    found = blueprint.combinations()
    names = {row.id: " ".join(row.choices.values()) for row in found.rows}
    by_name = {name: id for id, name in names.items()}
    baselines = found.baselines({by_name[name] for name in dead})
    return {names[id]: None if partner is None else names[partner] for id, partner in baselines.items()}


DEPTH = "explore: {connection: {add: {}, deepnorm: {residual: deepnorm, placement: post}}, layers: [1, 2]}\n"
REST = "explore: {attention: [{gqa: {kv_heads: 1}}, mha, mla], attention.kv_heads: [4, 2]}\n"

# study, baseline, the partner of each row
BASELINES = [
    # default: the first row
    (DEPTH, "null", dict.fromkeys(["add 1", "add 2", "deepnorm 1", "deepnorm 2"], "add 1")),
    (DEPTH, "{}", dict.fromkeys(["add 1", "add 2", "deepnorm 1", "deepnorm 2"], "add 1")),
    # an axis left out keeps the row's own value
    (DEPTH, "{connection: add}", {"add 1": "add 1", "add 2": "add 2", "deepnorm 1": "add 1", "deepnorm 2": "add 2"}),
    (
        DEPTH,
        "{layers: 2}",
        {"add 1": "add 2", "add 2": "add 2", "deepnorm 1": "deepnorm 2", "deepnorm 2": "deepnorm 2"},
    ),
    (
        DEPTH,
        "{connection: deepnorm, layers: 2}",
        dict.fromkeys(["add 1", "add 2", "deepnorm 1", "deepnorm 2"], "deepnorm 2"),
    ),
    # with axes that rest: the row's first place in the product
    (
        REST,
        "{attention: gqa}",
        {
            n: n if n.startswith("gqa") else "gqa:kv_heads=1 4"
            for n in ("gqa:kv_heads=1 4", "gqa:kv_heads=1 2", "mha", "mla")
        },
    ),
    (REST, "{attention: mla}", dict.fromkeys(["gqa:kv_heads=1 4", "gqa:kv_heads=1 2", "mha", "mla"], "mla")),
    (
        REST,
        "{attention.kv_heads: 2}",
        {"gqa:kv_heads=1 4": "gqa:kv_heads=1 2", "gqa:kv_heads=1 2": "gqa:kv_heads=1 2", "mha": "mha", "mla": "mla"},
    ),
    # values are compared, not how they are written
    ("explore: {norm.eps: [1e-5, 1]}", "{norm.eps: 1.0}", {"1e-05": "1", "1": "1"}),
    ("explore: {norm: [rmsnorm, none]}", "{norm: null}", {"rmsnorm": "none", "none": "none"}),
    ("explore: {norm: [as_written, none]}", "{norm: as_written}", {"as_written": "as_written", "none": "as_written"}),
    (
        "explore: {norm: [{rmsnorm: {eps: 1}}, none]}",
        "{norm: {rmsnorm: {eps: 1}}}",
        dict.fromkeys(["rmsnorm:eps=1", "none"], "rmsnorm:eps=1"),
    ),
]


@pytest.mark.parametrize(("study", "baseline", "expected"), BASELINES)
def test_what_each_row_is_compared_with(read, study, baseline, expected):
    assert partners(read(SMALL + study + f"\nbaseline: {baseline}")) == expected


def test_a_dead_row_is_no_baseline(read):
    study = SMALL + DEPTH
    assert partners(read(study), dead=["add 1"]) == dict.fromkeys(
        ["add 1", "add 2", "deepnorm 1", "deepnorm 2"], "add 2"
    )
    expected = {"add 1": None, "add 2": "add 2", "deepnorm 1": None, "deepnorm 2": "add 2"}
    assert partners(read(study + "baseline: {connection: add}"), dead=["add 1"]) == expected


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        ("[add]", "0.yaml:4:11: baseline: must be a mapping from axes to values, not a list"),
        ("{conection: add}", "0.yaml:4:12: baseline.conection: is no axis of this study\n  did you mean 'connection'?"),
        ("{norm: rmsnorm}", "baseline.norm: is no axis of this study\n  axes: connection, layers"),
        (
            "{connection: ad}",
            "baseline.connection: ad is not on this axis\n  did you mean 'add'?\n  values: add, deepnorm",
        ),
        ("{layers: 7}", "baseline.layers: 7 is not on this axis\n  values: 1, 2"),
    ],
)
def test_what_is_no_baseline(told, baseline, expected):
    assert expected in told(SMALL + DEPTH + f"baseline: {baseline}")


def test_a_bare_name_of_two_values_is_no_baseline(told):
    text = SMALL + "explore: {norm: [{rmsnorm: {eps: 1}}, {rmsnorm: {eps: 2}}]}\nbaseline: {norm: rmsnorm}"
    assert "rmsnorm could be several of its values\n  values: rmsnorm:eps=1, rmsnorm:eps=2" in told(text)
