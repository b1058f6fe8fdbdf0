"""A constructor's signature as the schema of what a blueprint may write."""

import functools
import inspect
import math
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, Optional

import pytest
import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn

from explorer import Activation, Norm, PluginError, Value, Width
from explorer.registry.kinds import KINDS
from explorer.registry.parameters import REQUIRED, SignatureError, read_schema
from explorer.registry.registry import Component, Origin

Rate = Annotated[float, Ge(0), Lt(1)]
Kernel = Literal["gauss", "box"]


class Colour(Enum):
    RED = "red"


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


class Unfinished(Value):
    text = "nothing"

    @classmethod
    def parse(cls, value):
        return value


def constructor(annotation, default=REQUIRED):
    """A constructor whose one parameter, right of `*`, is `p`."""

    def build(**arguments):
        return arguments

    parameter = inspect.Parameter("p", inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
    build.__signature__ = inspect.Signature([parameter])
    return build


def schema(build, kind="norm"):
    return read_schema(build, KINDS[kind])


def shape(annotation):
    return schema(constructor(annotation)).parameters["p"].shape


DEFAULTS = [  # annotation, default, as a blueprint writes it
    (float, 1, 1.0),
    (float | None, None, None),
    (Annotated[float | None, Gt(0)], None, None),
    (Literal["a", None], None, None),
    (tuple[int, ...], (1, 2), (1, 2)),
    (list[int], [1], [1]),
    (Width, 64, 64),
    (Width, {"ratio": "8/3", "multiple_of": 64}, {"ratio": "8/3", "multiple_of": 64}),
    (Width | None, None, None),
    (Width | Literal["auto"], "auto", "auto"),
    (Width | Literal["auto"], 64, 64),
    (Norm, "rmsnorm", "rmsnorm"),
    (Norm | None, {"rmsnorm": {"eps": 1e-5}}, {"rmsnorm": {"eps": 1e-5}}),
]


@pytest.mark.parametrize(("annotation", "default", "plain"), DEFAULTS)
def test_default_is_what_a_blueprint_would_write(annotation, default, plain):
    parameter = schema(constructor(annotation, default)).parameters["p"]
    assert not parameter.required
    assert repr(parameter.default) == repr(plain)


NO_DEFAULTS = [  # annotation, default, part of the message
    (float, math.inf, "its default inf must be float"),
    (float, math.nan, "its default nan must be float"),
    (int, 1.5, "its default 1.5 must be int"),
    (int, None, "its default None must be int"),
    (int, True, "its default True must be int"),
    (Annotated[float, Gt(0)], 0, "its default 0 must be float > 0"),
    (Kernel, "round", "its default 'round' must be gauss or box"),
    (str, b"a", "its default b'a' must be str"),
    (list[int], (1, "a"), "must be list of int"),
    (Width, 0, "its default 0 a width must be from 1"),
    (Width, Width(number=64), "as a blueprint writes it"),
    (Norm, nn.LayerNorm, "must be a norm, as a blueprint writes it"),
    (Span, {}, "Span cannot read"),
]


@pytest.mark.parametrize(("annotation", "default", "message"), NO_DEFAULTS)
def test_default_that_its_own_annotation_refuses(annotation, default, message):
    with pytest.raises(SignatureError, match="parameter 'p'") as caught:
        schema(constructor(annotation, default))
    assert message in str(caught.value)


ANNOTATIONS = [  # no schema, part of the message
    (inspect.Parameter.empty, "has no annotation"),
    ("Unknown", "cannot be read: NameError: name 'Unknown'"),
    ("1 / 0", "cannot be read: ZeroDivisionError"),
    ("list[", "cannot be read: SyntaxError"),
    (Tensor, "Tensor cannot be written in a blueprint; use bool, int"),
    (Any, "Any cannot be written"),
    (object, "object cannot be written"),
    (dict, "dict cannot be written"),
    (dict[str, int], "cannot be written"),
    (bytes, "bytes cannot be written"),
    (Colour, "Colour cannot be written"),
    (torch.dtype | None, "dtype cannot be written"),
    (Literal[Colour.RED], "is no plain value"),
    (list, "list does not say what it holds"),
    (tuple, "tuple does not say"),
    (list[Tensor], "Tensor cannot be written"),
    (list[int | Tensor], "Tensor cannot be written"),
    (nn.Module, "Module cannot be written"),
    (5, "5 cannot be written"),
    (Norm | Activation, "one component"),
    (Width | Span, "one structured value"),
    (Unfinished, "Unfinished must define schema"),
]


@pytest.mark.parametrize(("annotation", "message"), ANNOTATIONS)
def test_annotation_that_is_no_schema(annotation, message):
    with pytest.raises(SignatureError, match="parameter 'p'") as caught:
        schema(constructor(annotation))
    assert message in str(caught.value)


def test_text_in_annotations_is_evaluated_where_it_was_written():
    class Local(nn.Module):
        Own = Literal["x", "y"]

        def __init__(self, dim: "int", *, own: "Own", rate: "Rate" = 0.5, norm: "Norm | None" = None):
            super().__init__()

    assert [p.text for p in schema(Local).parameters.values()] == [
        "own (x or y, required)",
        "rate (float >= 0 and < 1, default 0.5)",
        "norm (a norm or null, default null)",
    ]
    assert shape(Optional["Rate"]).text == "float >= 0 and < 1 or null"


class Plain(nn.Module):
    """One."""

    def __init__(self, dim: int, *, eps: Annotated[float, Gt(0)] = 1e-6):
        super().__init__()
        self.dim, self.eps = dim, eps


class Inherits(Plain):
    pass


class NoInit(nn.Module):
    pass


class Bare:
    pass


class ByNew:
    def __new__(cls, dim: int, *, eps: "Rate" = 0.1):
        return nn.Identity()


class Factory:
    def __call__(self, dim: int, *, eps: "Rate" = 0.1) -> nn.Module:
        return Plain(dim, eps=eps)

    @classmethod
    def made(cls, dim: int, *, eps: "Rate" = 0.1) -> nn.Module:
        return Plain(dim, eps=eps)


def function(dim: int, *, eps: "Rate" = 0.1) -> nn.Module:
    """A function."""
    return Plain(dim, eps=eps)


@functools.wraps(function)
def wrapper(*arguments, **parameters):
    return function(*arguments, **parameters)


CONSTRUCTORS = [  # constructor, picks, parameters in words
    (Plain, ("dim",), "eps (float > 0, default 1e-06)"),
    (Inherits, ("dim",), "eps (float > 0, default 1e-06)"),
    (NoInit, (), "no parameters"),
    (nn.Tanh, (), "no parameters"),
    (Bare, (), "no parameters"),
    (ByNew, ("dim",), "eps (float >= 0 and < 1, default 0.1)"),
    (Factory(), ("dim",), "eps (float >= 0 and < 1, default 0.1)"),
    (Factory.made, ("dim",), "eps (float >= 0 and < 1, default 0.1)"),
    (function, ("dim",), "eps (float >= 0 and < 1, default 0.1)"),
    (wrapper, ("dim",), "eps (float >= 0 and < 1, default 0.1)"),
    (functools.partial(function, eps=0.5), ("dim",), "eps (float >= 0 and < 1, default 0.5)"),
    (functools.partial(Plain, 16), (), "eps (float > 0, default 1e-06)"),
    (functools.partial(NoInit), (), "no parameters"),
    (lambda dim: nn.LayerNorm(dim), ("dim",), "no parameters"),
]


@pytest.mark.parametrize(("build", "picks", "text"), CONSTRUCTORS)
def test_any_callable_may_be_a_constructor(build, picks, text):
    found = schema(build)
    assert found.picks == picks
    assert found.text == text


def no_annotation(dim, *, eps=1e-6): ...


def stars(dim, *sizes): ...


def star_star(dim, **options: Any): ...


def left(dim, eps=1e-6): ...


SIGNATURES = [  # kind, constructor, message
    ("norm", no_annotation, "parameter 'eps' has no annotation"),
    ("norm", stars, "parameter '*sizes' would hide typing errors"),
    ("norm", star_star, "parameter '**options' would hide typing errors"),
    ("norm", left, "parameter 'eps' stands left of * but a block gives a norm only: dim; move it right of *"),
    ("activation", nn.ReLU, "parameter 'inplace' stands left of * but a block gives an activation only: nothing"),
    ("norm", nn.Identity, "'*args' would hide"),
    ("norm", nn.LayerNorm, "parameter 'normalized_shape' stands left of *"),
    (
        "attention",
        lambda dim, kv_heads: None,
        "only: dim, heads, head_dim, causal, window, bias, position, dropout, site",
    ),
    ("norm", max, "its signature cannot be read"),
]


@pytest.mark.parametrize(("kind", "build", "message"), SIGNATURES)
def test_plugin_error_names_parameter_component_distribution_and_version(kind, build, message):
    component = Component(KINDS[kind], "mine", build, Origin("lab", "lab-dist", "1.2"))
    with pytest.raises(PluginError) as caught:
        _ = component.schema
    assert str(caught.value).startswith(f"{kind} 'mine' of lab-dist 1.2 (lab): ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text"), [("attention", "true or false or qkv or out"), ("feedforward", "true or false")]
)
def test_picking_bias_makes_it_writable(kind, text):
    bias = schema(lambda dim, bias: None, kind).parameters["bias"]
    assert (bias.text, bias.menu, bias.required) == (f"bias ({text}, default the block's)", True, False)
    assert "bias" not in schema(lambda dim: None, kind).parameters


def test_bias_right_of_the_star_is_a_parameter_of_its_own():
    def build(dim, *, bias: bool = True): ...

    bias = schema(build, "norm").parameters["bias"]
    assert (bias.text, bias.menu) == ("bias (true or false, default true)", False)


DOCS = [  # constructor, docstring
    (Plain, "One."),
    (Inherits, ""),
    (NoInit, ""),
    (function, "A function."),
    (functools.partial(function, eps=0.5), "A function."),
    (None, "Nothing is built."),
]


@pytest.mark.parametrize(("build", "doc"), DOCS)
def test_documentation_is_the_constructors_own(build, doc):
    assert Component(KINDS["norm"], "mine", build, Origin("lab", "lab-dist", "1.2")).doc == doc
