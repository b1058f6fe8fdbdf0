"""What an annotation lets a blueprint write, in words, as JSON Schema, and value by value."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Optional, Union

import pytest
import torch
from annotated_types import Ge, Gt, Interval, Len, Lt, MultipleOf, Predicate
from pydantic import Field

from explorer import Activation, Norm, Value, Width
from explorer.registry.shapes import read_shape

Rate = Annotated[float, Ge(0), Lt(1)]
Kernel = Literal["gauss", "box"]


class Span(Value):
    """A third party's structured value: `4` or `{first: 0, last: 4}`."""

    keys: ClassVar[tuple[str, ...]] = ("first", "last")
    text: ClassVar[str] = "int or {first: int, last: int}"

    @classmethod
    def parse(cls, value):
        return range(value["first"], value["last"]) if isinstance(value, dict) else range(value)

    @classmethod
    def schema(cls):
        return {"type": "integer"}


def is_even(number):
    return number % 2 == 0


FORMS = [  # annotation, in words, JSON Schema
    (bool, "true or false", {"type": "boolean"}),
    (int, "int", {"type": "integer"}),
    (float, "float", {"type": "number"}),
    (str, "str", {"type": "string"}),
    (None, "null", {"type": "null"}),
    (Kernel, "gauss or box", {"enum": ["gauss", "box"], "type": "string"}),
    (Literal["gauss"], "gauss", {"const": "gauss", "type": "string"}),
    (Literal["true", 2, True], '"true" or 2 or true', {"enum": ["true", 2, True]}),
    (Literal["a", None], "a or null", {"anyOf": [{"const": "a", "type": "string"}, {"type": "null"}]}),
    (Annotated[int, Ge(1)], "int >= 1", {"type": "integer", "minimum": 1}),
    (Annotated[int, Ge(1), Lt(2**24)], "int >= 1 and < 16777216", None),
    (Annotated[float, Gt(0)], "float > 0", {"type": "number", "exclusiveMinimum": 0}),
    (Rate, "float >= 0 and < 1", None),
    (Annotated[float, Interval(gt=0, le=1)], "float > 0 and <= 1", None),
    (Annotated[int, MultipleOf(8)], "int a multiple of 8", None),
    (Annotated[int, Field(gt=0)], "int > 0", None),
    (Annotated[int, "the number of groups"], "int", {"type": "integer"}),
    (float | None, "float or null", {"anyOf": [{"type": "number"}, {"type": "null"}]}),
    (Optional[float], "float or null", None),  # noqa: UP045
    (Union[int, str], "int or str", None),  # noqa: UP007
    (Annotated[int, Ge(1)] | None, "int >= 1 or null", None),
    (Annotated[int | None, Ge(1)], "int >= 1 or null", None),
    (Annotated[float, Gt(0)] | Literal["auto"], "float > 0 or auto", None),
    (bool | Literal["qkv", "out"], "true or false or qkv or out", None),
    (list[int], "list of int", {"type": "array", "items": {"type": "integer"}}),
    (list[Annotated[int, Ge(0)]], "list of (int >= 0)", None),
    (list[int | None], "list of (int or null)", None),
    (list[list[int]], "list of (list of int)", None),
    (tuple[int, ...], "list of int", None),
    (tuple[int, float], "[int, float]", None),
    (Sequence[float], "list of float", None),
    (Annotated[list[int], Len(1)], "list of at least 1 int", None),
    (Annotated[list[int], Len(1, 3)], "list of 1 to 3 int", None),
    (Annotated[list[int], Len(2, 2)], "list of 2 int", None),
    (Norm, "a norm", {"kind": "norm"}),
    (Activation, "an activation", {"kind": "activation"}),
    (Norm | None, "a norm or null", {"anyOf": [{"kind": "norm"}, {"type": "null"}]}),
    (Annotated[Norm | None, "of queries and keys"], "a norm or null", None),
    (Norm | Literal["auto", True], "a norm or auto or true", None),
    (Width, "int >= 1 or {ratio: number or fraction, multiple_of: int >= 1}", Width.schema()),
    (Width | None, "int >= 1 or {ratio: number or fraction, multiple_of: int >= 1} or null", None),
    (Span, "int or {first: int, last: int}", {"type": "integer"}),
]


@pytest.mark.parametrize(("annotation", "text", "json_schema"), FORMS)
def test_annotation_in_words_and_as_json_schema(annotation, text, json_schema):
    found = read_shape(annotation)
    assert found.text == text
    if json_schema is not None:
        assert found.json_schema(lambda kind: {"kind": kind}) == json_schema


LEAVES = [  # annotation, written, read
    (bool, False, False),
    (int, 7, 7),
    (int, 2**200, 2**200),
    (float, 0.1, 0.1),
    (float, 5e-324, 5e-324),
    (float, 2, 2.0),
    (str, "2", "2"),
    (str, "", ""),
    (Kernel, "box", "box"),
    (Literal[1, "a"], 1, 1),
    (Rate, 0, 0.0),
    (int | float, 3, 3),
    (int | float, 3.0, 3.0),
    (bool | int, 1, 1),
    (bool | int, True, True),
    (list[int], [], []),
    (list[float], [1, 0.5], [1.0, 0.5]),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (Sequence[int], [1], [1]),
    (Annotated[int, Predicate(is_even)], 4, 4),
]


@pytest.mark.parametrize(("annotation", "written", "read"), LEAVES)
def test_leaf_is_read_with_its_type(annotation, written, read):
    found = read_shape(annotation).read_leaf(written)
    assert repr(found) == repr(read)


NO_LEAVES = [  # annotation, written
    (bool, 1),
    (bool, "true"),
    (int, True),
    (int, 3.0),
    (int, "3"),
    (float, True),
    (float, "1e-5"),
    (float, math.inf),
    (float, math.nan),
    (float, 10**400),
    (str, 3),
    (str, None),
    (str, "\ud800"),
    (Kernel, "Box"),
    (Literal[1], True),
    (Literal[True], 1),
    (Literal[1], 1.0),
    (Rate, 1),
    (Rate, -0.1),
    (Annotated[int, Interval(gt=0, le=8)], 9),
    (int, [3]),
    (int, {"a": 3}),
    (list[int], 3),
    (list[int], "34"),
    (list[int], [1, 2.5]),
    (list[int], [1, True]),
    (list[float], [math.nan]),
    (list[int], {"0": 1}),
    (tuple[int, float], [1]),
    (Sequence[str], "ab"),
    (int, torch.ones(1)),
    (Norm, 3),
    (Annotated[str, Gt(0)], "a"),
    (Annotated[int, Predicate(is_even)], 3),
]


@pytest.mark.parametrize(("annotation", "written"), NO_LEAVES)
def test_what_is_no_leaf_is_refused_with_the_type(annotation, written):
    found = read_shape(annotation)
    assert found.leaf_fault(written).startswith(f"must be {found.text}")
    with pytest.raises(ValueError, match="must be"):
        found.read_leaf(written)


def test_a_validator_of_the_plugin_says_its_reason():
    assert "is_even" in read_shape(Annotated[int, Predicate(is_even)]).leaf_fault(3)


@pytest.mark.parametrize(
    ("written", "width"), [(64, 64), ({"ratio": "8/3", "multiple_of": 64}, 64), ({"ratio": 4}, 64)]
)
def test_width_is_read_from_a_number_or_a_ratio(written, width):
    assert read_shape(Width).read_value(written).of(16) == width


WIDTHS = [  # written, part of the message
    (0, "from 1 to"),
    (2**24 + 1, "from 1 to 16777216"),
    (True, "whole number"),
    (2.0, "whole number"),
    ("64", "whole number"),
    ({}, "ratio is missing"),
    ({"multiple_of": 64}, "ratio is missing"),
    ({"ratio": 2, "of": 3}, "'of' is unknown here; it takes ratio and multiple_of"),
    ({"ratio": 0}, "above 0"),
    ({"ratio": -2}, "above 0"),
    ({"ratio": "8/0"}, "not '8/0'"),
    ({"ratio": "-8/3"}, "not '-8/3'"),
    ({"ratio": "1e999999999"}, "not '1e999999999'"),  # Fraction would compute for hours
    ({"ratio": math.inf}, "not inf"),
    ({"ratio": True}, "not True"),
    ({"ratio": [2]}, "number or a fraction"),
    ({"ratio": 1e300}, "at most 16777216"),
    ({"ratio": 2, "multiple_of": 0}, "multiple_of must be from 1"),
]


@pytest.mark.parametrize(("written", "message"), WIDTHS)
def test_width_is_refused(written, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        read_shape(Width).read_value(written)


@pytest.mark.parametrize(("ratio", "message"), [("1/100", "leaves no width"), (2**24, "the largest is 16777216")])
def test_width_of_a_dim_is_refused(ratio, message):
    with pytest.raises(ValueError, match=message):
        Width.parse({"ratio": ratio}).of(16)


def test_ratio_is_exact():
    assert Width.parse({"ratio": "8/3"}).ratio == Fraction(8, 3)
    assert Width.parse({"ratio": 2.7}).ratio == Fraction(27, 10)
    assert Width.parse({"ratio": "1/3"}).of(12288) == 4096


def test_a_value_class_that_fails_is_no_crash():
    with pytest.raises(ValueError, match=r"Span cannot read \{'first': 1\}: KeyError: 'last'"):
        read_shape(Span).read_value({"first": 1})
