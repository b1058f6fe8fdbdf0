"""The arrays of a study against rows that are each made by themselves."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.blueprint.fields import FIELDS
from explorer.blueprint.load import load
from explorer.blueprint.partial import exactly
from explorer.blueprint.resolved import holders, settings_in_force
from explorer.errors import BlueprintError
from tests.blueprint import reference_combinations as reference
from tests.blueprint.generators import study_of

studies = st.integers(0, 2**32).map(study_of)


@pytest.fixture(scope="session")
def loaded(registry):
    """`load` with the toys, None for what is no blueprint; a function, because hypothesis prints its arguments."""

    def call(document):
        return outcome(lambda: load(document, registry=registry))[0]

    return call


def outcome(make):
    try:
        return make(), None
    except BlueprintError as error:
        return None, str(error)


@settings(max_examples=200)
@given(study=studies)
def test_every_row_is_the_one_made_by_itself(loaded, study):
    blueprint = loaded(study)
    if blueprint is not None:
        assert_equal_rows(blueprint)


def assert_equal_rows(blueprint):
    """The rows, or the errors, are those of the reference."""
    expected, error = outcome(lambda: reference.combinations(blueprint))
    found, told = outcome(blueprint.combinations)
    assert told == error
    if found is None:
        return
    assert found.merging.row_of.tolist() == list(expected.row_at.values())
    assert len(found.rows) == len(expected.rows)
    for row, other in zip(found.rows, expected.rows, strict=True):
        assert list(row.choices.items()) == list(other.choices.items())
        assert repr(row.state) == repr(other.state)  # with the place of every value
        assert (row.skipped, row.problems, row.plan) == (other.skipped, other.problems, other.plan)
    assert_the_arrays(found, expected, blueprint)


def assert_the_arrays(found, expected, blueprint):
    """What is known of all rows at once is what each says of itself."""
    codes, texts = found.reasons()
    assert [None if code < 0 else texts[code] for code in codes] == [row.skipped for row in expected.rows]
    assert texts == list(dict.fromkeys(row.skipped for row in expected.rows if row.skipped))
    dead = frozenset(np.flatnonzero(found.skipped).tolist())
    assert dead == {at for at, row in enumerate(expected.rows) if row.skipped}
    partners = [None if at < 0 else at for at in found.partners(found.skipped).tolist()]
    assert partners == expected.baselines(blueprint, dead)
    for axis in blueprint.axes:
        chosen = [axis.options[at].text if at >= 0 else None for at in found.options(axis).tolist()]
        assert chosen == [row.choices.get(axis.name) for row in expected.rows]


GQA = {"gqa": {"kv_heads": 2}}
BLOCKS = {"a": {"attention": "mha"}, "b": {}}
SUBTLE = {
    # a layer is of the unnamed block in some rows only; `layers` may come before or after what it decides on
    "unused": {"attention": GQA, "blocks": BLOCKS, "explore": {"layers": [["a"], 2], "attention.kv_heads": [1, 2]}},
    "used later": {
        "encoder": {"layers": ["a"], "attention": GQA},
        "decoder": {},
        "blocks": {"a": {}},
        "attention": "mha",
        "explore": {"encoder.attention.kv_heads": [1, 4], "attention": ["mha", "mla"], "encoder.layers": [["a"], 2]},
    },
    "used before": {
        "attention": GQA,
        "blocks": {"a": {"attention": "mha"}},
        "layers": ["a"],
        "explore": {"era": {"x": {"layers": 2, "attention.kv_heads": 1}, "y": {"attention.kv_heads": 1}, "z": {}}},
    },
    # a model with written layers is another than a block
    "written": {"explore": {"layers": ["as_written", 1, 2], "bias": [True, False]}},
    # equal for one number of heads, and a rule that names one of the equal options
    "baseline of the first place": {
        "explore": {"era": {"old": {"head_dim": 16}, "new": {}}, "heads": [4, 8]},
        "skip": [{"era": "old", "heads": 4}],
        "baseline": {"heads": 8},
    },
    "heads": {"explore": {"heads": [4, 3, 5], "head_dim": [None, 16], "attention": ["mha", "none"]}},
    "heads without any": {"explore": {"heads": [3, 5], "dim": [64, 32], "attention": ["none", "mla"]}},
    "layouts": {
        "encoder": {},
        "decoder": {},
        "explore": {
            "layout": ["parallel", "sequential"],
            "decoder.cross_attention": ["none", None, "mla"],
            "attention": ["mha", "none"],
        },
    },
    "tied": {"explore": {"tie_embeddings": [True, False], "vocab": [8, None], "norm": ["rmsnorm", "layernorm"]}},
    "required": {"explore": {"attention": ["gqa", "mha"], "blocks": [{"a": {"attention": "gqa"}}, None]}},
    "missing": {
        "heads": None,
        "explore": {"blocks": [None, {"a": {}}], "layers": ["a", 1], "heads": [4, "as_written"]},
    },
    # blocks of other names are other blocks
    "names of blocks": {
        "explore": {"shape": {"x": {"blocks": {"a": {}}}, "y": {"blocks": {"c": {}}}}, "layers": [1, 2]}
    },
    "no such block": {"explore": {"blocks": [{"a": {}}, {"c": {}}], "layers": ["a", 2]}},
    "rules": {
        "attention": GQA,
        "explore": {
            "qk": {"with": {"attention.qk_norm": "rmsnorm"}, "without": {}},
            "attention": ["as_written", "mha_naive", "gqa"],
            "bias": [True, False],
            "heads": [4, 3],
        },
        "skip": [{"qk": "with"}, {"attention.bias": True}, {"attention": "gqa", "heads": 3}],
    },
    # no row is left; what is wrong with a row that a rule skips is not told
    "rules and faults": {"explore": {"heads": [3, 5, 6], "norm": ["rmsnorm", "none"]}, "skip": [{"heads": 3}]},
    # values that are read in some rows only
    "wrong values": {"norm": "none", "explore": {"norm.eps": [0, 1, "as_written"], "norm": ["rmsnorm", "layernorm"]}},
    "many wrong values": {"norm": "none", "explore": {"norm.eps": [-n for n in range(70)], "norm": ["rmsnorm"]}},
}


@pytest.mark.parametrize("name", SUBTLE)
def test_what_is_easily_lost(loaded, name):
    study = {"dim": 64, "heads": 4, **SUBTLE[name]}
    if study["heads"] is None:
        del study["heads"]
    blueprint = loaded(study)
    assert blueprint is not None
    assert_equal_rows(blueprint)


@settings(max_examples=80)
@given(study=studies, random=st.randoms(use_true_random=False))
def test_cells_are_equal_where_the_fields_in_force_are(loaded, study, random):
    blueprint = loaded(study)
    found = outcome(blueprint.combinations)[0] if blueprint else None
    if found is None:
        return
    names = random.sample(list(FIELDS), 3)
    cells = found.space.cells(names)
    expected = {}
    for place in range(found.product):
        state = found.space.state(place)
        here = tuple(settings_in_force(state, name) for name in names)
        assert texts(cells.at(place)) == texts(here)
        code = int(cells.flat(np.array([place]))[0])
        assert expected.setdefault(code, (holders(state), texts(here))) == (holders(state), texts(here))
    assert len(set(expected.values())) == len(expected) == len(cells.values)
    kept = sorted(row.place for row in found.rows if row.skipped is None)
    codes = cells.flat(np.array(kept, np.intp)).tolist()
    firsts = dict(zip(codes[::-1], kept[::-1], strict=True))
    assert found.representatives(cells) == [firsts.get(code) for code in range(len(cells.values))]


def texts(cell):
    return tuple(tuple(setting and setting.text for setting in settings) for settings in cell)


INTERACTING = {
    "dim": 64,
    "heads": 4,
    "attention": {"gqa": {"kv_heads": 1}},
    "explore": {
        "attention": ["as_written", "mha", "mla"],
        "attention.kv_heads": [1, 2],
        "heads": [4, 8],
        "norm": ["rmsnorm", "layernorm"],
        "bias": [False],
    },
}


def dims(blueprint, varied):
    names = [axis.name for axis in blueprint.axes if len(axis.options) > 1]
    return [names[dim] for dim in varied.dims]


def test_a_field_varies_along_the_axes_that_change_it(read):
    blueprint = read(INTERACTING)
    found = blueprint.combinations()
    varying = {name: dims(blueprint, column) for name, column in found.space.fields.items()}
    assert {name: axes for name, axes in varying.items() if axes} == {
        "attention": ["attention", "attention.kv_heads"],
        "heads": ["heads"],
        "norm": ["norm"],
    }
    assert dims(blueprint, found.space.in_force["head_dim"]) == ["heads"]
    assert dims(blueprint, found.space.in_force["final_norm"]) == ["norm"]
    assert dims(blueprint, found.rests["attention.kv_heads"]) == ["attention"]
    assert [len(found.space.cells(names).values) for names in (["attention"], ["attention", "heads"], [])] == [4, 8, 1]


def test_a_question_is_asked_once_of_each_different_state_with_what_it_reads(read):
    space = read(INTERACTING).combinations().space
    asked = []

    def ask(state):
        asked.append(state.cells["", "block"]["norm"].value.name)
        return state.cells["", "block"]["heads"].value

    found = space.map(ask, {"norm": exactly, "heads": exactly})
    assert sorted(asked) == ["layernorm", "layernorm", "rmsnorm", "rmsnorm"]
    assert found.values == (4, 8)
    with pytest.raises(KeyError, match="norm"):
        space.map(ask, {"heads": exactly})


def test_a_row_is_made_when_it_is_asked_for(read):
    found = read(INTERACTING).combinations()
    rows = found.rows
    assert (found.product, found.merged, len(rows)) == (24, 8, 16)
    assert [row.id for row in rows] == found.ids().tolist()
    assert rows[-1].choices == rows[15].choices
    assert [row.place for row in rows[2:4]] == found.places[2:4].tolist()
    assert rows[5].plan == found.space.plan(rows[5].place)
    with pytest.raises(IndexError):
        rows[16]


def test_more_axes_than_an_array_has_dimensions(read):
    fields = ("norm", "attention", "position", "activation", "placement", "layout", "causal", "bias", "window")
    blocks = [f"b{n}" for n in range(10)]
    one = {f"blocks.{block}.{field}": ["as_written"] for block in blocks for field in fields}
    explore = {**one, "blocks.b3.window": [1, 2], "norm": ["rmsnorm", "layernorm"], "bias": [True]}
    study = {"dim": 64, "heads": 4, "blocks": {block: {} for block in blocks}, "layers": blocks, "explore": explore}
    found = read(study).combinations()
    assert len(found.axes) > 64
    assert found.space.grid.shape == (2, 2)
    assert [(row.choices["blocks.b3.window"], row.choices["norm"], row.choices["bias"]) for row in found.rows] == [
        (window, norm, "true") for window in "12" for norm in ("rmsnorm", "layernorm")
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_axes_changes_the_order_of_rows_only(loaded, seed):
    study = {**INTERACTING, "skip": [{"attention.kv_heads": 2, "heads": 8}], "baseline": {"norm": "layernorm"}}
    axes = list(study["explore"].items())
    Random(seed).shuffle(axes)
    first, other = (loaded({**study, "explore": explore}).combinations() for explore in (study["explore"], dict(axes)))
    skipped = [{row.id: row.skipped for row in found.rows} for found in (first, other)]
    assert skipped[0] == skipped[1]
    assert first.baselines(()) == other.baselines(())
