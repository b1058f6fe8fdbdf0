"""The positioned tree of a blueprint that is given from Python."""

from __future__ import annotations

import enum

import pytest

from explorer.blueprint.tree import (
    MAX_DEPTH,
    Entry,
    MappingNode,
    ScalarNode,
    SequenceNode,
    child,
    describe,
    node_of,
    plain,
)
from explorer.errors import BlueprintError, Problem, Where


def problems_of(value: object) -> tuple[Problem, ...]:
    with pytest.raises(BlueprintError) as caught:
        node_of(value, "<dict>")
    return caught.value.problems


class Colour(str, enum.Enum):
    RED = "red"


def test_python_values_become_nodes() -> None:
    where = Where("<dict>")
    tree = node_of({"a": (1, 2.5), "b": {"c": None}, "d": Colour.RED}, "<dict>")
    numbers = SequenceNode((ScalarNode(1, where), ScalarNode(2.5, where)), where)
    nothing = MappingNode((Entry("c", where, ScalarNode(None, where)),), where)
    red = ScalarNode("red", where)
    assert tree == MappingNode((Entry("a", where, numbers), Entry("b", where, nothing), Entry("d", where, red)), where)
    assert type(plain(tree)["d"]) is str  # type: ignore[index]


def cyclic() -> dict[str, object]:
    value: dict[str, object] = {}
    value["ffn"] = [value]
    return value


def doubled(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value, value]
    return value


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value}
    return value


NO_VALUES = [
    ({"norm": {"eps": float("inf")}}, "<dict>: norm.eps: inf is not a finite number"),
    ({"a": [1, float("nan")]}, "<dict>: a[1]: nan is not a finite number"),
    ({"a": {1: 2}}, "<dict>: a: a key must be text, not 1 (int)"),
    ({None: 2}, "<dict>: a key must be text, not None (NoneType)"),
    ({"a": {1, 2}}, "<dict>: a: a set is no blueprint value: {1, 2}"),
    ({"a": b"x"}, "<dict>: a: a bytes is no blueprint value: b'x'"),
    ({"a": 1j}, "<dict>: a: a complex is no blueprint value: 1j"),
    ({"a": 1 << 300}, "<dict>: a: an integer of 301 bits is too large"),
    ({"a": "\ud800"}, "<dict>: a: '\\ud800' holds half of a character"),
    ({"\ud800": 1}, "'\\ud800' holds half of a character"),
    (cyclic(), "<dict>: ffn[0]: this dict contains itself"),
    (doubled(20), "<dict>: more than 100,000 values"),
    (nested(100), f"nested more than {MAX_DEPTH} levels deep"),
]


@pytest.mark.parametrize(("value", "fragment"), NO_VALUES, ids=range(len(NO_VALUES)))
def test_python_value_that_no_blueprint_can_hold(value: object, fragment: str) -> None:
    (problem,) = problems_of(value)
    assert fragment in str(problem)


def test_all_problems_of_a_python_value_are_shown_at_once() -> None:
    found = problems_of({"a": object, 2: 3, "b": [float("inf")]})
    assert [problem.path for problem in found] == ["a", "", "b[0]"]


def test_a_value_used_twice_is_no_cycle() -> None:
    shared = {"eps": 1}
    assert plain(node_of([shared, shared])) == [shared, shared]


def test_paths_and_descriptions() -> None:
    assert [child("", "norm"), child("norm", "eps"), child("layers", 2)] == ["norm", "norm.eps", "layers[2]"]
    values: list[object] = [{}, [], None, True, 5, 0.5, "off"]
    described = [describe(node_of(value)) for value in values]
    assert described == ["a mapping", "a list", "null", "true", "the number 5", "the number 0.5", "the text 'off'"]
