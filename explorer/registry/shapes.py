"""What may be written for one parameter, read off its annotation."""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Union

from explorer.registry.makers import KIND_OF
from explorer.registry.values import Value
from explorer.registry.words import type_text

_SCALARS = (bool, int, float, str)
_LISTS = (list, tuple, Sequence)
_TAKES = "use bool, int, float, str, Literal, lists of these, Norm, Activation or a Value class such as Width"
# What a validator of the plugin's own says is the reason; for all else the type in words says more.
_OWN_REASONS = frozenset({"value_error", "assertion_error", "predicate_failed", "not_operation_failed"})


class SignatureError(Exception):
    """A constructor's signature cannot be a schema; the message names the parameter."""


@dataclass(frozen=True)
class Shape:
    """What may be written for one parameter: a component, a structured value, a leaf, null."""

    kind: str | None = None
    value: type[Value] | None = None
    leaf: Any = None
    nullable: bool = False

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter

        return TypeAdapter(self.leaf, config=ConfigDict(strict=True, allow_inf_nan=False))

    def read_leaf(self, written: Any) -> Any:
        """The leaf that is written: an int given for a float becomes one, a list given for a tuple too.

        Raises: ValueError with one sentence.
        """
        if self.leaf is None:
            raise ValueError(f"must be {self.text}")
        try:
            # As JSON, which is what a blueprint holds: a list may then be a tuple, and nothing but data is let in.
            read = self._adapter.validate_json(json.dumps(written))
        except Exception as error:
            raise ValueError(f"must be {self.text}{_own_reason(error)}") from None
        if not _same_type(written, read):
            raise ValueError(f"must be {self.text}")
        return read

    def leaf_fault(self, written: Any) -> str | None:
        """Why ``written`` is not a valid leaf (one sentence), or None where it is one."""
        try:
            self.read_leaf(written)
        except ValueError as error:
            return str(error)
        return None

    def read_value(self, written: Any) -> Value:
        """The structured value that is written.

        Raises: ValueError with one sentence, also where its class fails over it.
        """
        assert self.value is not None, self
        try:
            return self.value.parse(written)
        except ValueError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{self.value.__name__} cannot read {written!r}: {reason}") from error

    @property
    def text(self) -> str:
        """The type in words: ``int >= 1 or null``."""
        parts = [f"{article(self.kind)} {self.kind}"] if self.kind else []
        parts += [self.value.text] if self.value else []
        parts += [type_text(self._adapter.json_schema())] if self.leaf is not None else []
        return " or ".join([*parts, *(["null"] if self.nullable else [])])

    def json_schema(self, component: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """JSON Schema; ``component(kind)`` gives the schema of a component."""
        options = [component(self.kind)] if self.kind else []
        options += [self.value.schema()] if self.value else []
        options += [self._adapter.json_schema()] if self.leaf is not None else []
        options += [{"type": "null"}] if self.nullable else []
        return options[0] if len(options) == 1 else {"anyOf": options}


def read_shape(annotation: Any) -> Shape:
    """What an annotation allows: makers, Value classes, null, and the rest as one leaf.

    Raises: SignatureError, or whatever pydantic says of bounds that do not fit their type.
    """
    members = _members(annotation)
    kinds = [KIND_OF[member] for member in members if _names_kind(member)]
    values = [member for member in members if _is_value(member)]
    rest = [m for m in members if m is not type(None) and not _names_kind(m) and not _is_value(m)]
    if len(kinds) > 1 or len(values) > 1:
        raise SignatureError("a union may hold one component and one structured value")
    for refused in (fault for member in rest if (fault := _leaf_fault(member))):
        raise SignatureError(f"{refused}; {_TAKES}")
    for value in values:
        _check_value(value)
    shape = Shape(
        kind=kinds[0] if kinds else None,
        value=values[0] if values else None,
        leaf=Union[tuple(rest)] if rest else None,  # noqa: UP007 - built at run time
        nullable=type(None) in members,
    )
    if shape.leaf is not None:
        _ = shape._adapter  # an annotation pydantic cannot read must fail here, with the parameter's name
    return shape


def _members(annotation: Any) -> tuple[Any, ...]:
    """The options of a union, one by one. What surrounds a union is put on each option, and null stands alone:
    ``Annotated[int | None, Ge(1)]`` and ``Annotated[int, Ge(1)] | None`` are the same, as are ``Literal["a", None]``
    and ``Literal["a"] | None``.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        return tuple(member for argument in arguments for member in _members(argument))
    if origin is Annotated:
        return tuple(_annotated(member, arguments[1:]) for member in _members(arguments[0]))
    if origin is Literal and None in arguments:
        options = tuple(argument for argument in arguments if argument is not None)
        return (Literal[options], type(None)) if options else (type(None),)
    return (type(None),) if annotation is None else (annotation,)


def _annotated(member: Any, extras: tuple[Any, ...]) -> Any:
    plain = member is type(None) or _names_kind(member) or _is_value(member)
    form: Any = Annotated  # a type made at run time
    given = (member, *extras)
    return member if plain else form[given]


def _names_kind(member: Any) -> bool:
    return inspect.isclass(member) and member in KIND_OF


def _is_value(member: Any) -> bool:
    # In Python 3.10 `list[int]` passes for a class, but issubclass refuses it.
    return inspect.isclass(member) and typing.get_origin(member) is None and issubclass(member, Value)


def _leaf_fault(annotation: Any) -> str | None:
    """Why no blueprint can write a value of this type, or None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _leaf_fault(arguments[0])
    if origin is Literal:
        return next((f"{a!r} is no plain value" for a in arguments if type(a) not in _SCALARS), None)
    if origin in _LISTS:
        items = [member for a in arguments if a is not Ellipsis for member in _members(a)]
        return next((fault for item in items if item is not type(None) and (fault := _leaf_fault(item))), None)
    if annotation in _LISTS:
        return f"{annotation.__name__} does not say what it holds"
    named = annotation.__name__ if inspect.isclass(annotation) and origin is None else annotation
    return None if annotation in _SCALARS else f"{named} cannot be written in a blueprint"


def _check_value(value: type[Value]) -> None:
    if inspect.isabstract(value):
        raise SignatureError(f"{value.__name__} must define {', '.join(sorted(value.__abstractmethods__))}")
    _ = value.text, value.schema()  # one that fails must fail here, with the parameter's name


def _own_reason(error: Exception) -> str:
    """What the plugin's own validator says, as an addition to a sentence."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return ""
    return "".join(f" ({e['msg']})" for e in error.errors(include_url=False)[:1] if e["type"] in _OWN_REASONS)


def _same_type(written: Any, read: Any) -> bool:
    """Whether nothing but int to float was changed: 1, 1.0 and true are equal in Python, so a Literal takes each."""
    if isinstance(read, list | tuple):
        return all(map(_same_type, written, read))
    boolean = isinstance(written, bool) is isinstance(read, bool)
    return boolean and isinstance(written, float) <= isinstance(read, float)


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"
