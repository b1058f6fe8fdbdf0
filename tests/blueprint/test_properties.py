"""What holds for every blueprint: generated from the fields of the language with hypothesis."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from random import Random

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.blueprint.load import load
from explorer.blueprint.resolved import form, resolved
from explorer.blueprint.schema import json_schema
from tests.blueprint.generators import OF_MODELS, OF_STACKS, VALUES, document_of


@pytest.fixture(scope="session")
def loaded(registry):
    """`load` with the toys; a function, because hypothesis prints its arguments."""

    def call(document, **options):
        return load(document, registry=registry, **options)

    return call


documents = st.integers(0, 2**32).map(document_of)  # far more different ones than strategies of the same fields make
quick = settings(max_examples=80, deadline=None)


def same(one, other):
    """Equal plans, where a final norm called none is as good as no final norm."""
    stacks = [[replace(s, final_norm=_final(s)) for s in plan.stacks] for plan in (one, other)]
    return stacks[0] == stacks[1] and replace(one, stacks=()) == replace(other, stacks=())


def _final(stack):
    return None if stack.final_norm is None or stack.final_norm.name == "none" else stack.final_norm


@quick
@given(document=documents)
def test_a_resolved_blueprint_resolves_to_itself(loaded, document):
    first = loaded(document)
    again = loaded(first.resolved())
    assert again.resolved() == first.resolved()
    assert same(again.plan(), first.plan())
    assert form(again.state) == form(first.state)


@pytest.fixture(scope="session")
def valid(registry):
    """Whether a document is valid; a function, because hypothesis prints its arguments."""
    validator = jsonschema.Draft202012Validator(json_schema(registry))

    def call(document):
        return validator.is_valid(document)

    return call


@quick
@given(document=documents)
def test_the_schema_takes_every_blueprint_and_its_resolved_form(loaded, valid, document):
    assert valid(document)
    assert valid(loaded(document).resolved())


def shuffled(value, random):
    if isinstance(value, dict):
        items = [(key, shuffled(item, random)) for key, item in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled(item, random) for item in value] if isinstance(value, list) else value


@quick
@given(document=documents, random=st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(loaded, document, random):
    paths = {"norm.eps": 0.125, "head.bias": True, "blocks.a.norm.eps": 2, "window": 9, "dropout.sublayer": 0.5}
    document = {**document, **paths, "norm": "rmsnorm", "head": "lm", "blocks": {"a": {"norm": "rmsnorm"}, "b": {}}}
    first = loaded(document)
    other = loaded(shuffled(document, random))
    assert other.resolved() == first.resolved()
    assert other.digest == first.digest
    assert form(other.state) == form(first.state)


def everywhere(state, name):
    return [fields[name].value for (stack, _), fields in state.cells.items() if stack in state.real_stacks]


@quick
@given(
    document=documents, field=st.sampled_from(["bias", "window", "causal", "placement", "activation"]), data=st.data()
)
def test_a_wide_change_later_wins_over_narrow_ones_before(loaded, document, field, data):
    value = data.draw(st.sampled_from([v for v in VALUES[field] if v is not None]))
    state = loaded(document, sets=[f"{field}={_flow(value)}"]).state
    found = everywhere(state, field)
    assert len(found) == 3 * len(state.real_stacks)
    assert all(_named(one) == _named(value) for one in found)


@quick
@given(document=documents, random=st.randoms(use_true_random=False))
def test_in_one_mapping_the_narrow_change_wins(loaded, document, random):
    narrow = {"window": 1, "blocks": {"a": {"window": 2}, "b": {}}}
    if "encoder" in document:
        narrow |= {"encoder": {"window": 3, "blocks": {"a": {"window": 4}}}, "decoder": {}}
    fields = {key: value for key, value in document.items() if key not in narrow}
    cells = loaded(shuffled({**fields, **narrow}, random)).state.cells
    windows = {cell: fields["window"].value for cell, fields in cells.items()}
    if "encoder" not in document:
        assert {block: windows["", block] for block in ("block", "a", "b")} == {"block": 1, "a": 2, "b": 1}
        return
    assert [windows["encoder", block] for block in ("block", "a", "b")] == [3, 4, 3]
    assert [windows["decoder", block] for block in ("block", "a", "b")] == [1, 2, 1]


def _flow(value):
    return str(value).lower() if isinstance(value, bool) else str(_named(value))


def _named(value):
    """The name of a component, however it is given; other values as they are."""
    return next(iter(value)) if isinstance(value, dict) else getattr(value, "name", value)


AXES = {
    **{name: VALUES[name] for name in ("norm", "attention", "position", "bias", "window", "head_dim", "placement")},
    "attention.kv_heads": [1, 2, 4],
    "attention.qk_norm": ["as_written", "rmsnorm"],
    "norm.eps": [0.5, 1, "as_written"],
    "heads": [4, 3, 8],
    "residual.streams": [2, 4],
    "residual": ["add", "mhc"],
}
NAMED = {"era": {"old": {"activation": "relu", "feedforward.hidden": 8}, "new": {}, "same": None}}


@st.composite
def studies(draw):
    names = draw(st.lists(st.sampled_from([*AXES, "era"]), min_size=1, max_size=4, unique=True))
    explore = {}
    for name in names:
        values = (
            draw(st.permutations(AXES[name]))[: draw(st.integers(1, len(AXES[name])))] if name in AXES else NAMED["era"]
        )
        explore[name] = values
    skip = draw(
        st.lists(st.sampled_from([{"norm": "layernorm"}, {"bias": True, "window": 1}, {"heads": 8}]), unique_by=str)
    )
    return {"explore": explore, "skip": skip}


@quick
@given(study=studies())
def test_rows_and_skipped_and_merged_are_the_product(loaded, study):
    from explorer.errors import BlueprintError

    document = {
        "dim": 64,
        "heads": 4,
        "attention": {"gqa": {"kv_heads": 2, "qk_norm": None}},
        "residual": "mhc",
        **study,
    }
    blueprint = loaded(document)
    try:
        found = blueprint.combinations()
    except BlueprintError:
        return  # an axis that rests everywhere, or no row left
    indexes = list(product(*(range(len(axis.options)) for axis in blueprint.axes)))
    kept = [row for row in found.rows if row.skipped is None]
    skipped = [row for row in found.rows if row.skipped is not None]
    assert len(kept) + len(skipped) + found.merged == found.product == math.prod(map(len, study["explore"].values()))
    assert found.product == len(indexes)
    assert len({row.id for row in found.rows}) == len(found.rows)
    assert len({form(row.state) for row in found.rows}) == len(found.rows)
    assert all((row.plan is None) == (row.skipped is not None) for row in found.rows)
    for row in kept:  # what a row shows loads again and is the row
        assert same(loaded(resolved(row.state)).plan(), row.plan)
    assert found.merging.homes.tolist() == sorted(set(found.merging.homes.tolist()))
    baselines = found.baselines({row.id for row in skipped})
    assert set(baselines) == {row.id for row in found.rows}
    assert set(baselines.values()) <= {None, *(row.id for row in kept)}


@quick
@given(
    ratio=st.fractions(min_value="1/8", max_value=8, max_denominator=12),
    dim=st.integers(8, 5000),
    multiple=st.integers(1, 300),
)
def test_a_ratio_is_the_floor_then_the_next_multiple(loaded, ratio, dim, multiple):
    hidden = {"ratio": f"{ratio.numerator}/{ratio.denominator}", "multiple_of": multiple}
    document = {"dim": dim, "heads": 1, "feedforward": {"dense": {"hidden": hidden}}}
    chosen = loaded(document).plan().stack.base.feedforward
    width = chosen.arguments()["hidden"].of(dim)
    floor = ratio.numerator * dim // ratio.denominator
    assert width % multiple == 0
    assert floor <= width < floor + multiple


WORDS = [
    *VALUES,
    *OF_STACKS,
    *OF_MODELS,
    *("encoder", "decoder", "blocks", "a", "b", "layers", "explore", "skip", "baseline", "workloads", "match", "name"),
    *(
        "base",
        "requires",
        "norm.eps",
        "attention.kv_heads",
        "blocks.a.window",
        "encoder.norm",
        "decoder.blocks.a",
        "kv_heads",
    ),
    *(
        "pattern",
        "count",
        "tokens",
        "context",
        "phase",
        "rmsnorm",
        "gqa",
        "eps",
        "hidden",
        "ratio",
        "feedforward.hidden.ratio",
    ),
    *("", ".", "norm.", "x", "blocks.", "encoder.encoder", "as_written", "none", "block"),
]
JUNK = [None, True, False, 0, 1, 2, -1, 64, 2**40, 0.5, -0.0, 1e300, "", "x", "8/3", "prefill", [], {}, *WORDS]


def junk(random, depth=0):
    """Anything that YAML can write, made of the words of the language."""
    if depth > 4 or random.random() < 0.4:
        return random.choice(JUNK)
    size = random.randrange(4)
    if random.random() < 0.3:
        return [junk(random, depth + 1) for _ in range(size)]
    return {random.choice(WORDS): junk(random, depth + 1) for _ in range(size)}


def hostile(seed):
    """A blueprint with some of its values replaced by others, or by anything."""
    random = Random(seed)
    document = document_of(seed)
    study = {
        "explore": {"norm": ["rmsnorm", junk(random)], "era": {"a": junk(random), "b": {}}},
        "skip": [junk(random)],
    }
    document |= study if random.random() < 0.5 else {}
    for _ in range(random.randrange(4)):
        document[random.choice(WORDS)] = junk(random, 1)
    return document


@settings(max_examples=300, deadline=None)
@given(document=st.integers(0, 2**32).map(hostile))
def test_whatever_is_written_is_a_blueprint_or_a_clear_error(loaded, document):
    from explorer.errors import BlueprintError, UsageError

    error = None
    try:
        blueprint = loaded(document)
        found = blueprint.combinations(limit=500)
    except (BlueprintError, UsageError) as caught:
        error = caught
    if isinstance(error, BlueprintError):
        assert all(str(problem).startswith("<mapping>") for problem in error.problems)
    elif error is not None:
        assert "more than the limit" in str(error)
    else:
        assert blueprint.digest
        assert all(same(loaded(resolved(row.state)).plan(), row.plan) for row in found.rows if row.plan)
