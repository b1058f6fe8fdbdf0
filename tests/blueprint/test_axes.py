"""What is explored: values of a path, named options, resting axes, equal rows, counts."""

from __future__ import annotations

import pytest

from explorer.errors import UsageError
from tests.blueprint.work import calls_of

SMALL = "dim: 64\nheads: 4\n"


def rows(blueprint):
    return [" ".join(row.choices.values()) for row in blueprint.combinations().rows]


def counts(blueprint):
    found = blueprint.combinations()
    skipped = sum(row.skipped is not None for row in found.rows)
    assert len(found.rows) + found.merged == found.product
    return found.product, len(found.rows) - skipped, skipped, found.merged


# explore, then product, rows, skipped, merged, then the choices of each row
STUDIES = [
    # the first axis is the slowest
    (
        "{norm: [rmsnorm, layernorm], bias: [true, false]}",
        (4, 4, 0, 0),
        ["rmsnorm true", "rmsnorm false", "layernorm true"],
    ),
    # an axis rests where the chosen component lacks its parameter: 3 + 1 + 1 attentions, not 9
    (
        "{attention: [gqa, mha, mla], attention.kv_heads: [4, 2, 1]}",
        (9, 5, 0, 4),
        ["gqa 4", "gqa 2", "gqa 1", "mha", "mla"],
    ),
    # whatever the order in which the axes are written
    (
        "{attention.kv_heads: [4, 2, 1], attention: [gqa, mha, mla]}",
        (9, 5, 0, 4),
        ["4 gqa", "mha", "mla", "2 gqa", "1 gqa"],
    ),
    # `as_written` keeps the blueprint's
    ("{norm: [as_written, layernorm]}", (2, 2, 0, 0), ["as_written", "layernorm"]),
    ("{norm: [as_written, rmsnorm]}", (2, 1, 0, 1), ["as_written"]),
    ("{norm.eps: [as_written, 1], norm: [rmsnorm, none]}", (4, 3, 0, 1), ["as_written rmsnorm", "none", "1 rmsnorm"]),
    # named options change several fields at once; an empty one keeps all
    ("{era: {old: {norm: layernorm, bias: true}, new: {}}}", (2, 2, 0, 0), ["old", "new"]),
    ("{era: {old: {norm: layernorm}, new: null}}", (2, 2, 0, 0), ["old", "new"]),
    (
        "{qk: {without: {}, with: {attention.qk_norm: rmsnorm}}, attention: [mha, mha_naive]}",
        (4, 3, 0, 1),
        ["without mha", "mha_naive", "with mha"],
    ),
    # rows that resolve alike are one
    ("{norm: [rmsnorm, {rmsnorm: {eps: 1e-6}}, {rmsnorm: {eps: 0.1}}]}", (3, 2, 0, 1), ["rmsnorm", "rmsnorm:eps=0.1"]),
    ("{head_dim: [null, 16, 8]}", (3, 2, 0, 1), ["null", "8"]),
    ("{final_norm: [auto, true, rmsnorm, none]}", (4, 2, 0, 2), ["auto", "none"]),
    ("{norm: [none, null]}", (2, 1, 0, 1), ["none"]),
    ("{layers: [2, {pattern: [block], count: 2}, 3]}", (3, 2, 0, 1), ["2", "3"]),
    # a path into a block or a stack; named options that define them
    (
        "{blocks.a.window: [1, 2], shape: {with: {blocks: {a: {}}}, without: {}}}",
        (4, 3, 0, 1),
        ["1 with", "without", "2 with"],
    ),
    (
        "{encoder: [null, {layers: 2}], encoder.norm: [rmsnorm, layernorm]}",
        (4, 3, 0, 1),
        ["null", "{layers: 2} rmsnorm"],
    ),
    # wide before narrow, short before long, across axes too
    ("{norm.eps: [1], norm: [layernorm]}", (1, 1, 0, 0), ["1 layernorm"]),
    # one axis of one value
    ("{dropout.attention: [0.1]}", (1, 1, 0, 0), ["0.1"]),
    # what cannot be is a skipped row with its reason
    ("{heads: [4, 3, 2]}", (3, 2, 1, 0), ["4", "3", "2"]),
    ("{attention: [gqa, mha]}", (2, 1, 1, 0), ["gqa", "mha"]),
    ("null", (1, 1, 0, 0), [""]),
]


@pytest.mark.parametrize(("explore", "expected", "first"), STUDIES)
def test_rows_and_counts(read, explore, expected, first):
    blueprint = read(SMALL + f"explore: {explore}")
    assert counts(blueprint) == expected
    assert rows(blueprint)[: len(first)] == first


def test_short_before_long_across_axes(read):
    (row,) = read(SMALL + "explore: {norm.eps: [1], norm: [layernorm]}").combinations().rows
    assert row.plan.stack.base.norm.plain() == {"layernorm": {"eps": 1.0, "bias": True}}


def test_a_skipped_row_says_why(read):
    rows = read(SMALL + "explore: {heads: [4, 3]}").combinations().rows
    assert rows[1].skipped == "heads: heads 3 does not divide dim 64 (64/3 = 21.33)"
    assert rows[1].plan is None
    assert rows[0].plan is not None


def test_no_row_left_is_an_error_with_every_reason(told):
    error = told(SMALL + "explore: {heads: [3, 5]}")
    assert "0.yaml:3:19: heads: heads 3 does not divide dim 64" in error
    assert "0.yaml:3:22: heads: heads 5 does not divide dim 64" in error


def test_a_change_that_no_layer_feels_rests(told):
    text = SMALL + "attention: {gqa: {kv_heads: 1}}\nblocks: {a: {attention: mha}}\nlayers: [a]\n"
    assert "attention.kv_heads: reaches nothing" in told(text + "explore: {attention.kv_heads: [1, 2]}")


def test_rows_are_one_where_only_an_unused_block_differs(read):
    text = SMALL + "blocks: {a: {}}\nlayers: [a]\nexplore: {wide: {a: {bias: true, blocks.a.bias: false}, b: {}}}"
    assert counts(read(text)) == (2, 1, 0, 1)


ERRORS = [
    ("[norm]", "0.yaml:3:10: explore: must be a mapping from axes to their values, not a list"),
    ("{norm: rmsnorm}", "explore.norm: must be a list of values, not the text 'rmsnorm'"),
    ("{norm: {a: {}}}", "explore.norm: must be a list of values, not a mapping"),
    ("{norm: []}", "explore.norm: the axis is empty"),
    ("{era: {}}", "explore.era: the axis is empty"),
    ("{era: [a, b]}", "a list is for a path, and there is no field 'era'"),
    ("{atention: [mha]}", "there is no field 'atention'\n  did you mean 'attention'?"),
    ("{kv_heads: [1]}", "'kv_heads' is a parameter of attention 'gqa': write `attention.kv_heads: ...`"),
    ("{era: 3}", "must be a mapping of named options, each a mapping of changes, not the number 3"),
    ("{era: {a: 3}}", "explore.era.a: a named option is a mapping of changes, not the number 3"),
    ("{era: {a: {nrom: rmsnorm}}}", "nrom: there is no field 'nrom'\n  did you mean 'norm'?"),
    ("{workloads: [{}]}", "'workloads' stands at the top of a file only and cannot be an axis"),
    ("{norm: [rmsnorm, rmsnorm]}", "explore.norm: rmsnorm stands twice on this axis"),
    ("{norm: [rmsnrom, layernorm]}", "0.yaml:3:18: norm: no norm is called 'rmsnrom'\n  did you mean 'rmsnorm'?"),
    ("{heads: [4, true]}", "0.yaml:3:22: heads: must be int >= 1 and <="),
    ("{norm: [{rmsnorm: {epsilon: 1}}]}", "norm 'rmsnorm' has no parameter 'epsilon'\n  did you mean 'eps'?"),
    ("{bias: [on, off]}", "on means true in YAML 1.1"),
    # two axes that set one path
    ("{norm: [none], era: {a: {norm: none}, b: {}}}", "norm: is set by two axes, norm and era"),
    (
        "{encoder.bias: [true], era: {a: {encoder: {bias: true}}}}",
        "encoder.bias: is set by two axes, encoder.bias and era",
    ),
    ("{a: {x: {blocks: {}}}, b: {y: {blocks: {}}}}", "blocks: is set by two axes, a and b"),
    # resting everywhere
    (
        "{attention.kv_heads: [1, 2]}",
        "0.yaml:3:32: attention.kv_heads: reaches nothing\n  attention is 'mha', which has: ",
    ),
    ("{norm.epsilon: [1, 2]}", "norm.epsilon: reaches nothing\n  did you mean 'eps'?"),
    ("{blocks.a.window: [1]}", "blocks.a.window: there is no block 'a'"),
    ("{attention.kv_heads: [as_written, 2]}", "attention.kv_heads: reaches nothing"),
    # of named options, each change must reach something in some row
    (
        "{a: {x: {norm: none, norm.eps: 2}, y: {}}}",
        "norm.eps: reaches nothing\n  norm is 'none', which has: no parameters",
    ),
]


@pytest.mark.parametrize(("explore", "expected"), ERRORS)
def test_what_is_no_axis(told, explore, expected):
    assert expected in told(SMALL + f"explore: {explore}")


def test_wrong_values_of_many_rows_are_told_once(told):
    error = told(SMALL + "explore: {heads: [4, x], norm.eps: [1, 0, -1], bias: [true, false]}")
    assert [line for line in error.splitlines() if not line.startswith(" ")] == [
        "0.yaml:3:22: heads: must be int >= 1 and <= 16777216, not the text 'x'",
        "0.yaml:3:40: norm.eps: must be float > 0, not the number 0",
        "0.yaml:3:43: norm.eps: must be float > 0, not the number -1",
    ]


def test_values_are_told_with_the_other_problems_of_the_file(told):
    error = told(SMALL + "nrom: none\nexplore: {heads: [4, x], era: {a: {norm: rmsnrom, norm.eps: 0}, b: {}}}")
    assert [line.split(": ")[0] for line in error.splitlines() if line[0] != " "] == [
        "0.yaml:3:1",
        "0.yaml:4:22",
        "0.yaml:4:42",
    ]


def test_axes_of_the_command_line(read, told):
    text = (
        SMALL
        + "explore: {norm: [rmsnorm, layernorm], era: {a: {bias: true}, b: {}, c: {causal: false}}}\nbaseline: {era: b}"
    )
    # one of the same name is replaced where it stands, one of another name is the last
    assert rows(read(text, axes=["norm=none", "window=4,8"])) == [
        f"none {era} {window}" for era in "abc" for window in (4, 8)
    ]
    # of named options a list names some
    assert rows(read(text, axes=["era=b,a"])) == ["rmsnorm b", "rmsnorm a", "layernorm b", "layernorm a"]
    assert "era: d is not on this axis\n  values: a, b, c" in told(text, axes=["era=d"])
    assert "baseline.era: b is not on this axis" in told(text, axes=["era=a"])


def test_labels_choices_and_axes(read):
    from explorer.blueprint.axes import plain_axes

    blueprint = read(
        SMALL
        + "explore: {attention: [{gqa: {kv_heads: 2, qk_norm: {rmsnorm: {eps: 1}}}}, mha], layers: [2, [{block: 2}]], "
        + "feedforward.hidden: [{ratio: 8/3}, null]}"
    )
    assert plain_axes(blueprint.axes) == {
        "attention": ["gqa:kv_heads=2:qk_norm={rmsnorm: {eps: 1}}", "mha"],
        "layers": ["2", "[{block: 2}]"],
        "feedforward.hidden": ["{ratio: 8/3}", "null"],
    }
    row = blueprint.combinations().rows[0]
    assert row.label == "gqa:kv_heads=2:qk_norm={rmsnorm: {eps: 1}}, layers=2, hidden={ratio: 8/3}"
    # the text of every choice is what the command line takes
    again = read(SMALL, axes=[f"{axis}={','.join(texts)}" for axis, texts in plain_axes(blueprint.axes).items()])
    assert plain_axes(again.axes) == plain_axes(blueprint.axes)
    assert [r.plan for r in again.combinations().rows] == [r.plan for r in blueprint.combinations().rows]


IDS = SMALL + "explore: {norm: [rmsnorm, layernorm], era: {a: {bias: true}, b: {}}}"


def test_ids_tell_rows_apart_and_stay(read):
    ids = [row.id for row in read(IDS).combinations().rows]
    assert len(set(ids)) == 4
    assert all(len(id) == 8 and set(id) <= set("0123456789abcdef") for id in ids)
    # the order of axes, of options and of keys does not change them; what an option does, and the rest of the model, do
    other = SMALL.replace("4", "4") + "explore: {era: {b: {}, a: {bias: true}}, norm: [layernorm, rmsnorm]}"
    assert {row.id for row in read(other).combinations().rows} == set(ids)
    renamed = {row.id for row in read(IDS.replace("bias: true", "causal: false")).combinations().rows}
    assert len(renamed & set(ids)) == 2
    assert not {row.id for row in read(IDS.replace("64", "32")).combinations().rows} & set(ids)


def test_digest_is_of_everything_that_is_studied(read):
    digests = {
        read(text).digest
        for text in (
            IDS,
            IDS + "\nskip: [{era: a}]",
            IDS + "\nbaseline: {era: b}",
            IDS + "\nworkloads: [{tokens: 4}]",
            IDS.replace("bias: true", "causal: false"),
            IDS.replace("64", "32"),
        )
    }
    assert len(digests) == 6
    assert read("heads: 4\ndim: 64\n" + IDS.removeprefix(SMALL)).digest == read(IDS).digest


def test_a_product_above_the_limit_is_refused_before_anything_is_resolved(read):
    axes = [
        f"{path}={','.join(map(str, range(1, 11)))}"
        for path in ("heads", "window", "head_dim", "layers", "seed", "dim")
    ]
    blueprint = read(SMALL, axes=axes)
    errors = []

    def refused():
        with pytest.raises(UsageError) as caught:
            blueprint.combinations()
        errors.append(str(caught.value))

    assert calls_of(refused) < 1_000
    assert errors[0] == (
        "1,000,000 combinations (10 x 10 x 10 x 10 x 10 x 10) are more than the limit of 100,000: "
        "shorten an axis, or raise the limit with --limit 1000000"
    )


def test_the_limit_compares_the_product(read):
    blueprint = read(SMALL + "explore: {attention: [gqa, mha, mla], attention.kv_heads: [4, 2, 1]}")
    assert blueprint.combinations(limit=9).product == 9
    with pytest.raises(UsageError, match="9 combinations"):
        blueprint.combinations(limit=8)


def test_a_long_study_is_quick(read):
    axes = {
        "attention.kv_heads": list(range(1, 11)),
        "feedforward.hidden": list(range(1, 11)),
        "norm.eps": [10.0**-n for n in range(10)],
        "layers": list(range(1, 11)),
    }
    blueprint = read({"dim": 64, "heads": 4, "attention": {"gqa": {"kv_heads": 1}}, "explore": axes})
    assert calls_of(blueprint.combinations) < 50_000, "five for each row"
    found = blueprint.combinations()
    assert (found.product, found.merged, found.skipped.sum()) == (10_000, 0, 0)


def test_a_million_rows_take_seconds(read):
    axes = {
        "attention.kv_heads": list(range(1, 11)),
        "heads": [2**n for n in range(10)],
        "feedforward.hidden": list(range(1, 11)),
        "norm.eps": [10.0**-n for n in range(10)],
        "layers": list(range(1, 11)),
        "window": list(range(1, 11)),
    }
    skip = [{"attention.kv_heads": 3, "window": 2}]
    fields = {"dim": 512, "heads": 4, "attention": {"gqa": {"kv_heads": 1}}}
    blueprint = read({**fields, "explore": axes, "skip": skip, "baseline": {"layers": 2}})
    found = blueprint.combinations(limit=10**6)
    ids, partners = found.ids(), found.partners(found.skipped)
    assert calls_of(lambda: blueprint.combinations(limit=10**6).ids()) < 100_000, "one for ten rows"
    assert (found.product, found.merged, found.skipped.sum()) == (10**6, 0, 10**4)
    assert len(set(ids.tolist())) == 10**6
    rows = found.rows
    assert rows[-1].choices == {name: axis.options[-1].text for name, axis in zip(axes, blueprint.axes, strict=True)}
    assert rows[partners[-1]].choices == {**rows[-1].choices, "layers": "2"}
